"""Formats that write each argument as bare text between marks, read while it is written.

A value may hold the very mark that closes it: that counts only if what has to follow there does,
another argument or the call's end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from omlxd.worker.marks import scan
from omlxd.worker.tool_calls.pieces import Arguments, Began, Broken, Ended, Piece
from omlxd.worker.tool_calls.typed import STRING, Types, convert

_LONGEST_MARK = 512  # characters, with the name in it
_CDATA = ("<![CDATA[", "]]>")


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedFormat:
    """`name` and `key` match the marks that open a call and an argument, and have a group of the
    same name; `opens` is how `key` begins. `ends` close a call, one behind the other. `breaks`: one
    line break at either end of a value is the format's. `cdata`: a value may be a CDATA section.
    """

    start: str
    name: re.Pattern[str]
    opens: str
    key: re.Pattern[str]
    close: str
    ends: tuple[str, ...]
    breaks: bool = False
    cdata: bool = False


class MarkedCallReader:
    """A `CallReader`. `types`: by tool and argument; tools that are not in it were not offered."""

    def __init__(self, form: MarkedFormat, types: Mapping[str, Mapping[str, Types]]) -> None:
        self._form, self._types = form, types
        self._state: Literal["name", "key", "value"] = "name"
        self._held = ""
        self._written = form.start  # of what is not part of a complete call
        self._name = self._key = ""
        self._num_arguments = 0
        self._has_begun = False
        self._is_first = True
        self._value: list[str] | None = None  # what was read of one that has to be converted
        self._is_fresh = False  # nothing of the value was read yet
        self._rest: str | None = None

    @property
    def rest(self) -> str | None:
        return self._rest

    def feed(self, text: str) -> list[Piece]:
        self._held += text
        pieces: list[Piece] = []
        steps = {"name": self._read_name, "key": self._read_key, "value": self._read_value}
        while self._rest is None and steps[self._state](pieces):
            pass
        return pieces

    def end(self) -> list[Piece]:
        if self._written:
            self._written += self._held
            self._held = ""
            return self._break()
        # A part of the end mark is no text.
        self._rest = "" if self._form.ends[-1].startswith(self._held.strip()) else self._held
        return []

    # ------------------------------------------------------------------ steps: whether to go on

    def _read_name(self, pieces: list[Piece]) -> bool:
        bare = self._held.lstrip()
        if not self._written:  # behind a complete call
            end = self._form.ends[-1]
            if bare.startswith(end):
                self._rest = bare[len(end) :]
                return False
            if end.startswith(bare):
                return False
        match = self._form.name.match(self._held)
        if match is not None and match["name"] in self._types:
            self._take(match.end())
            self._name, self._num_arguments, self._state = match["name"], 0, "key"
            self._has_begun = True
            pieces.append(Began(self._name))
            return True
        if match is None and len(bare) <= _LONGEST_MARK:
            return False
        pieces += self._break()
        return False

    def _read_key(self, pieces: list[Piece]) -> bool:
        bare = self._held.lstrip()
        match = self._form.key.match(self._held)
        if match is not None:
            self._take(match.end())
            self._key, self._state, self._is_fresh = match["key"].strip(), "value", True
            self._value = None if self._streams else []
            pieces.append(Arguments(self._separator() + json.dumps(self._key) + ": "))
            if self._value is None:
                pieces.append(Arguments('"'))
            return True
        end = self._form.ends[0]
        if bare.startswith(end):
            self._take(len(self._held) - len(bare) + len(end))
            pieces += [Arguments("}" if self._num_arguments else "{}"), Ended()]
            self._written, self._state = "", "name"
            self._has_begun = self._is_first = False
            if len(self._form.ends) == 1:
                self._rest, self._held = self._held, ""
            return True
        opens = self._form.opens
        if end.startswith(bare) or opens.startswith(bare):
            return False
        if bare.startswith(opens) and len(bare) <= _LONGEST_MARK:
            return False
        pieces += self._break()
        return False

    def _read_value(self, pieces: list[Piece]) -> bool:
        if self._is_fresh and self._held:
            self._take(self._form.breaks and self._held.startswith("\n"))
            self._is_fresh = False
        close = self._form.close
        scanned = scan(self._held, ("\n" + close, close) if self._form.breaks else (close,))
        if scanned.mark is None:
            self._add(scanned.text, pieces)
            return False
        follows = self._follows(scanned.rest)
        if follows is None:
            self._add(scanned.text, pieces)
            return False
        mark = scanned.mark
        if not follows:
            # Only its first character is sure to be no mark: another may begin inside it.
            self._add(scanned.text + mark[0], pieces)
            return True
        self._add(scanned.text, pieces)
        self._take(len(mark))
        if self._value is None:
            pieces.append(Arguments('"'))
        else:
            value = convert(self._unwrapped("".join(self._value)), self._argument_types)
            pieces.append(Arguments(json.dumps(value, ensure_ascii=False)))
        self._num_arguments += 1
        self._state = "key"
        return True

    # ------------------------------------------------------------------ inside

    @property
    def _argument_types(self) -> Types:
        return self._types[self._name].get(self._key) or STRING

    @property
    def _streams(self) -> bool:
        return self._argument_types == STRING and not self._form.cdata

    def _separator(self) -> str:
        return ", " if self._num_arguments else "{"

    def _unwrapped(self, text: str) -> str:
        opening, closing = _CDATA
        bare = text.strip()
        if self._form.cdata and bare.startswith(opening) and bare.endswith(closing):
            return bare[len(opening) : -len(closing)]
        return text

    def _follows(self, rest: str) -> bool | None:
        """Whether what has to follow a value does; None = not known yet."""
        bare = rest.lstrip()
        marks = (self._form.opens, self._form.ends[0])
        if any(bare.startswith(mark) for mark in marks):
            return True
        return None if any(mark.startswith(bare) for mark in marks) else False

    def _add(self, text: str, pieces: list[Piece]) -> None:
        if not text:
            return
        self._take(len(text))
        if self._value is None:
            pieces.append(Arguments(json.dumps(text, ensure_ascii=False)[1:-1]))
        else:
            self._value.append(text)

    def _take(self, length: int) -> None:
        self._written += self._held[:length]
        self._held = self._held[length:]

    def _break(self) -> list[Piece]:
        """What is written is no call. Of one that did not begin all but the start mark is text."""
        broken = self._written if self._has_begun else self._form.start * self._is_first
        self._rest = self._written[len(broken) :] + self._held
        return [Broken(broken)] if broken else []
