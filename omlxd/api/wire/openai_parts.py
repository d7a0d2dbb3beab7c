"""Content as both of OpenAI's conversation routes have it, a string or parts → pieces.

A string and a list with that one text are the same content, so a client that flips between the
two keeps its prefix.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omlxd.api.ports import ServedModel
from omlxd.api.wire.media import Content, Media, Piece, content_of, text_of
from omlxd.errors import RequestInvalid

_PICTURES = ("image_url", "image", "input_image")
_FILES = ("file", "input_file")
_TEXTS = ("text", "input_text", "output_text", "refusal")


class Parts:
    """Reads the content of one request's messages; pictures and files go to `media`."""

    def __init__(self, model: ServedModel) -> None:
        self.media = Media(model)

    def omit(self, kind: str) -> str:
        """Counts something that has no place in a prompt; gives the note for it."""
        return self.media.other(kind)

    def content(self, content: Any, where: str) -> Content:
        return content_of(self.pieces(content, where))

    def text(self, content: Any, where: str) -> str:
        """Of what can only be text."""
        return text_of(self.pieces(content, where), where)

    def pieces(self, content: Any, where: str) -> list[Piece]:
        """Raises RequestInvalid with the place of what cannot be read."""
        if content is None:
            return []
        if isinstance(content, str):
            return [content]
        if not isinstance(content, list):
            raise RequestInvalid(f"{where}: send a string, null, or a list of parts.", param=where)
        return [self._part(part, f"{where}[{i}]") for i, part in enumerate(content)]

    def _part(self, part: Any, where: str) -> Piece:
        if isinstance(part, str):
            return part
        if not isinstance(part, Mapping) or not isinstance(kind := part.get("type"), str):
            raise RequestInvalid(f"{where}: send an object with a type.", param=where)
        text = part.get("refusal" if kind == "refusal" else "text")
        if isinstance(text, str):
            return text
        if kind in _TEXTS:
            raise RequestInvalid(f"{where}.text: send a string.", param=f"{where}.text")
        if kind in _PICTURES:
            return self.media.picture(part, where)
        if kind in _FILES:
            return self.media.document(kind, where)
        return self.media.other(kind)
