"""Pictures and files in a request: for a model that sees they are collected where they occur, for
any other a note takes their place, and it is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from omlxd.api.ports import ServedModel
from omlxd.api.wire.picture_source import Picture, source_of
from omlxd.errors import RequestInvalid

MAX_PICTURES = 100
_SEES = ("vlm", "ocr")
_JOIN = "\n"

Piece = str | int  # a text, or the number of a picture
Content = str | list[dict[str, Any]]


class Media:
    """Of one request."""

    def __init__(self, model: ServedModel) -> None:
        self._model = model
        self.num_omitted = 0
        self.pictures: list[Picture] = []  # in the order in which they occur

    def picture(self, part: Mapping[str, Any], where: str) -> Piece:
        """The picture's number; a note for a model that has no vision."""
        if self._model.kind not in _SEES:
            self.num_omitted += 1
            return f"[image omitted: {self._model.id} has no vision]"
        if len(self.pictures) == MAX_PICTURES:
            raise RequestInvalid(
                f"{where}: is one picture more than the {MAX_PICTURES} that a request may have; "
                "send fewer, or leave out old ones.",
                param=where,
            )
        self.pictures.append(Picture(where, source_of(part, where)))
        return len(self.pictures) - 1

    def document(self, kind: str, where: str) -> str:
        """The note for a file; refused for a model that could read it if it were pictures."""
        if self._model.kind in _SEES:
            raise RequestInvalid(
                f"{where}: {kind} is not read in this version, neither as PDF nor otherwise; send "
                "its text, or its pages as pictures.",
                param=where,
            )
        return self.other(kind)

    def other(self, kind: str) -> str:
        self.num_omitted += 1
        return f"[{kind} omitted: {self._model.id} cannot read it]"


def content_of(pieces: Iterable[Piece]) -> Content:
    """One string, unless there are pictures; then a list of parts.

    A part is {"type": "text", "text": TEXT} or {"type": "image", "image": NUMBER}. Texts side by
    side are one, so that a string and a list with that text stay the same content.
    """
    parts: list[dict[str, Any]] = []
    for is_text, run in groupby(pieces, key=lambda piece: isinstance(piece, str)):
        if not is_text:
            parts += [{"type": "image", "image": number} for number in run]
        elif text := _JOIN.join(map(str, run)):
            parts.append({"type": "text", "text": text})
    if all(part["type"] == "text" for part in parts):
        return parts[0]["text"] if parts else ""
    return parts


def text_of(pieces: Iterable[Piece], where: str) -> str:
    """For a place that holds text only. Raises RequestInvalid where there is a picture."""
    content = content_of(pieces)
    if isinstance(content, str):
        return content
    raise RequestInvalid(
        f"{where}: no picture can stand here; send it in a user's message.", param=where
    )
