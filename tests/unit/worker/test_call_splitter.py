"""Calls parted from the text around them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlxd.worker.reasoning import Said
from omlxd.worker.tool_calls.pieces import Arguments, Began, Broken, Ended, Piece
from omlxd.worker.tool_calls.splitter import CallSplitter


class Letters:
    """Reads `[name.]`, character by character: a name is one letter, `!` breaks it."""

    def __init__(self) -> None:
        self.rest: str | None = None
        self._read = "["

    def feed(self, text: str) -> Sequence[Piece]:
        pieces: list[Piece] = []
        for number, letter in enumerate(text):
            self._read += letter
            if letter in "!]":
                self.rest = text[number + 1 :]
                return [*pieces, Ended() if letter == "]" else Broken(self._read)]
            if len(self._read) == 2 and letter.isalpha():
                pieces.append(Began(letter))
            else:
                pieces.append(Arguments(letter))
        return pieces

    def end(self) -> Sequence[Piece]:
        return [Broken(self._read)]


def split(chunks: Sequence[str]) -> list[Said | Piece]:
    """With what is said, and arguments, put together."""
    splitter = CallSplitter("[", Letters)
    parts: list[Said | Piece] = []
    for part in [p for chunk in chunks for p in splitter.feed(chunk)] + splitter.feed(
        "", final=True
    ):
        last = parts[-1] if parts else None
        if isinstance(part, Said | Arguments) and type(part) is type(last):
            parts[-1] = type(part)(last.text + part.text)  # type: ignore[union-attr]
        else:
            parts.append(part)
    assert splitter.num_held == 0
    return parts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hi\n", [Said("hi\n")]),
        ("hi \n[a.]", [Said("hi"), Began("a"), Arguments("."), Ended()]),
        ("[a]\n[b]\n", [Began("a"), Ended(), Began("b"), Ended()]),
        ("[a] so", [Began("a"), Ended(), Said(" so")]),
        ("hi [!", [Said("hi [!")]),
        ("x [a.!", [Said("x"), Began("a"), Arguments("."), Broken("[a.!")]),
        ("[a.", [Began("a"), Arguments("."), Broken("[a.")]),
    ],
)
def test_calls_are_told_apart_from_text(text: str, expected: list[Said | Piece]) -> None:
    """Blanks around a call go with it; those before what is none stay."""
    assert split([text]) == expected
    assert split(text) == expected


@given(st.text("a[]! \n.", max_size=16), st.data())
def test_any_chunking_gives_the_same_parts(text: str, data: st.DataObject) -> None:
    """And nothing that was written is lost, but for blanks around calls."""
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=5)))
    chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert split(chunks) == split([text]) == split(text)
