"""Formats that are read once they are complete, by the parsers of mlx-lm.

The first end mark up to which the parser understands the text is the one that counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from omlxd.worker.output_format import CallMarks
from omlxd.worker.tool_calls.pieces import Arguments, Began, Broken, Ended, Piece
from omlxd.worker.tool_calls.typed import Types, fit

# (text between the marks) → calls, or one, with `name` and `arguments`; of mlx_lm.tool_parsers
Parser = Callable[[str], Any]
# What the parsers raise on text that they do not understand.
_NOT_UNDERSTOOD = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    SyntaxError,
    RecursionError,
    MemoryError,  # of ast.parse, on deep nesting
)


class WholeCallReader:
    """A `CallReader`. `types`: by tool and argument; tools that are not in it were not offered."""

    def __init__(
        self, marks: CallMarks, parser: Parser, types: Mapping[str, Mapping[str, Types]]
    ) -> None:
        self._marks, self._parser, self._types = marks, parser, types
        self._text = ""
        self._searched = 0  # end marks before this were tried
        self._rest: str | None = None

    @property
    def rest(self) -> str | None:
        return self._rest

    def feed(self, text: str) -> list[Piece]:
        self._text += text
        end = self._marks.end
        while (at := self._text.find(end, self._searched)) >= 0:
            self._searched = at + 1
            pieces = self._calls(self._text[:at])
            if pieces:
                self._rest = self._text[at + len(end) :]
                return pieces
        self._searched = max(self._searched, len(self._text) - len(end) + 1)
        return []

    def end(self) -> list[Piece]:
        self._rest = ""
        return self._calls(self._text) or [Broken(self._marks.start + self._text)]

    def _calls(self, text: str) -> list[Piece]:
        """Pieces of all calls; none if it is not understood, or calls what was not offered."""
        try:
            parsed = self._parser(text)
        except _NOT_UNDERSTOOD:
            return []
        calls = parsed if isinstance(parsed, list) else [parsed]
        pieces: list[Piece] = []
        for call in calls:
            name, arguments = call.get("name"), call.get("arguments")
            if name not in self._types or not isinstance(arguments, dict):
                return []
            typed = {
                key: fit(value, types) if (types := self._types[name].get(key)) else value
                for key, value in arguments.items()
            }
            try:
                written = json.dumps(typed, ensure_ascii=False, allow_nan=False)
            except (TypeError, ValueError):  # sets and the like, which Python literals can hold
                return []
            pieces += [Began(name), Arguments(written), Ended()]
        return pieces
