"""Marks in a stream of text: stop strings, and those around reasoning and tool calls.

The earliest match wins, and of those that begin there the longest. Held back is only the longest
tail that could still become part of a match, so any chunking of the text gives the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Scanned(NamedTuple):
    """`text` comes before the mark. Behind it is `rest`; without one that may still become one."""

    text: str
    mark: str | None
    rest: str


def scan(text: str, marks: Sequence[str], *, final: bool = False) -> Scanned:
    """The first of the marks; none of them is empty. `final`: no more text follows."""
    match = _first_match(text, marks)
    begin = None if final else _first_begin(text, marks, match)
    if begin is not None:
        return Scanned(text[:begin], None, text[begin:])
    if match is None:
        return Scanned(text, None, "")
    at, mark = match
    return Scanned(text[:at], mark, text[at + len(mark) :])


def _first_match(text: str, marks: Sequence[str]) -> tuple[int, str] | None:
    found = [(at, mark) for mark in marks if (at := text.find(mark)) >= 0]
    return min(found, key=lambda pair: (pair[0], -len(pair[1])), default=None)


def _first_begin(text: str, marks: Sequence[str], match: tuple[int, str] | None) -> int | None:
    """Where the earliest unfinished mark begins that would win over `match`."""
    limit, matched = (len(text), 0) if match is None else (match[0], len(match[1]))
    begins = [
        begin
        for mark in marks
        if (begin := _unfinished(text, mark)) is not None
        and (begin < limit or (begin == limit and len(mark) > matched))
    ]
    return min(begins, default=None)


def _unfinished(text: str, mark: str) -> int | None:
    """Where the longest tail of `text` begins that is a beginning of `mark`, but not all of it."""
    at = text.find(mark[0], max(0, len(text) - len(mark) + 1))
    while at >= 0:
        if mark.startswith(text[at:]):
            return at
        at = text.find(mark[0], at + 1)
    return None
