"""Formats that are read once they are complete: at each end mark that is not inside a call."""

from __future__ import annotations

import json
from collections.abc import Mapping

from omlxd.worker.output_format import CallMarks
from omlxd.worker.tool_calls.pieces import Arguments, Began, Broken, Ended, Piece
from omlxd.worker.tool_calls.typed import Types, fit
from omlxd.worker.tool_calls.whole_formats import Call, Parsed, Parser


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
            parsed = self._parser(self._text[:at])
            if not parsed.is_open:
                return self._close(parsed, at, end)
        self._searched = max(self._searched, len(self._text) - len(end) + 1)
        return []

    def end(self) -> list[Piece]:
        return self._close(self._parser(self._text), len(self._text), "")

    def _close(self, parsed: Parsed, at: int, end: str) -> list[Piece]:
        """The calls up to the first that cannot be run; all from there on is text."""
        pieces: list[Piece] = []
        used = 0
        for call in parsed.calls:
            written = self._arguments(call)
            if written is None:
                break
            pieces += [Began(call.name), Arguments(written), Ended()]
            used = call.end
        if pieces and not self._text[used:at].strip():
            used = at + len(end)
        self._rest = self._text[used:]
        return pieces or [Broken(self._marks.start)]

    def _arguments(self, call: Call) -> str | None:
        """As JSON; None if the tool was not offered, or this is nothing that JSON can say."""
        types = self._types.get(call.name)
        if types is None:
            return None
        typed = {
            key: fit(value, types[key]) if types.get(key) else value
            for key, value in call.arguments.items()
        }
        try:
            return json.dumps(typed, ensure_ascii=False, allow_nan=False)
        except ValueError:
            return None
