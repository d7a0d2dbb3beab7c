"""Values as models write them where a format is nearly, but not quite, JSON or Python.

A string that is not closed is told apart from text that makes no sense: more text may close it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_BLANKS = re.compile(r"\s*")
_CLOSING = {"{": "}", "[": "]", "(": ")"}
_WORDS = {"true": True, "false": False, "null": None, "none": None}
_NUMBER = re.compile(r"[+-]?(?:0|[1-9]\d*)(?:\.\d*)?(?:[eE][+-]?\d+)?")


class UnfinishedError(ValueError):
    """The text ends inside of what is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notation:
    """`quotes`: what opens and closes a string, longer ones first; `bare` matches a value, or a
    key, that has none. `decode` gives the text of a string by its quote and what is between two.
    """

    quotes: tuple[str, ...]
    bare: re.Pattern[str]
    decode: Callable[[str, str], str]
    raw: frozenset[str] = frozenset()  # quotes in whose strings a backslash is a letter


class LiteralCursor:
    """Reads on from `at`. ValueError if something else is there; RecursionError if it is deep."""

    def __init__(self, text: str, at: int, notation: Notation) -> None:
        self._text, self.at, self._notation = text, at, notation

    def take(self, mark: str) -> bool:
        """Whether the mark, or blanks and the mark, are next; they are read if they are."""
        at = self._behind_blanks()
        if not self._text.startswith(mark, at):
            return False
        self.at = at + len(mark)
        return True

    def key(self, behind: str) -> str:
        """A name and the sign behind it."""
        text = self._string()
        if text is None:
            text = self._bare()
        if not self.take(behind):
            raise ValueError(f"{behind!r} expected at {self.at}")
        return text

    def pairs(self, close: str, behind: str) -> dict[str, Any]:
        """Keys and values, up to and including `close`."""
        found: dict[str, Any] = {}
        while not self.take(close):
            key = self.key(behind)
            found[key] = self.value()
            if not self.take(","):
                self._expect(close)
                break
        return found

    def value(self) -> Any:
        text = self._string()
        if text is not None:
            return text
        opening = self._text[self.at]
        if opening not in _CLOSING:
            return _word(self._bare())
        self.at += 1
        if opening == "{":
            return self.pairs("}", ":")
        values: list[Any] = []
        while not self.take(_CLOSING[opening]):
            values.append(self.value())
            if not self.take(","):
                self._expect(_CLOSING[opening])
                break
        return values

    def _expect(self, mark: str) -> None:
        if not self.take(mark):
            raise ValueError(f"{mark!r} expected at {self.at}")

    def _string(self) -> str | None:
        """None if no string is next; blanks before are read."""
        self.at = self._behind_blanks()
        for quote in self._notation.quotes:
            if self._text.startswith(quote, self.at):
                begin = self.at + len(quote)
                end = self._string_end(quote, begin)
                self.at = end + len(quote)
                return self._notation.decode(quote, self._text[begin:end])
        return None

    def _string_end(self, quote: str, begin: int) -> int:
        at = begin
        while (end := self._text.find(quote, at)) >= 0:
            escape = -1 if quote in self._notation.raw else self._text.find("\\", at, end)
            if escape < 0:
                return end
            at = escape + 2
        raise UnfinishedError

    def _bare(self) -> str:
        match = self._notation.bare.match(self._text, self.at)
        if match is None:
            raise ValueError(f"nothing at {self.at}")
        self.at = match.end()
        self._behind_blanks()
        return match[0].strip()

    def _behind_blanks(self) -> int:
        """The next place that is not blank; there is one, or the text is unfinished."""
        match = _BLANKS.match(self._text, self.at)
        assert match is not None
        if match.end() == len(self._text):
            raise UnfinishedError
        return match.end()


def _word(text: str) -> Any:
    """What a bare word means; what means nothing is a string."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _NUMBER.fullmatch(text) is None:
        return text
    number = float(text)
    if not math.isfinite(number):
        return text
    return number if set(text) & set(".eE") else int(text)


# ---------------------------------------------------------------------------- notations


def _json_string(quote: str, inside: str) -> str:
    if quote != '"':
        return inside
    text = json.loads(f'"{inside}"', strict=False)
    assert isinstance(text, str)
    return text


def gemma(quote: str) -> Notation:
    """Keys are bare; strings stand between two of `quote`, now and then as in JSON."""
    return Notation(
        quotes=(quote, '"'),
        bare=re.compile(rf"(?:(?!{re.escape(quote)})[^:,{{}}\[\]()])+"),
        decode=_json_string,
        raw=frozenset({quote}),
    )


_ESCAPE = re.compile(
    r"\\(?:(?P<sign>[\\'\"abfnrtv\n])|(?P<octal>[0-7]{1,3})"
    r"|x(?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})|U(?P<U>00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4}))"
)
_SIGNS = dict(zip("\\'\"abfnrtv", "\\'\"\a\b\f\n\r\t\v", strict=True)) | {"\n": ""}


def _python_string(_quote: str, inside: str) -> str:
    """As Python reads it, but line breaks may be in every string, and `\\N{…}` stays as it is.

    ValueError if it is no text.
    """

    def unescape(match: re.Match[str]) -> str:
        if (sign := match["sign"]) is not None:
            return _SIGNS[sign]
        if (octal := match["octal"]) is not None:
            return chr(int(octal, 8))
        return chr(int(match["x"] or match["u"] or match["U"], 16))

    text = _ESCAPE.sub(unescape, inside)
    # Pairs of surrogates become characters, as in JSON; a lone one raises.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


PYTHON = Notation(
    quotes=('"""', "'''", '"', "'"),
    bare=re.compile(r"[^:=,{}\[\]()\"']+"),
    decode=_python_string,
)
