"""Formats whose arguments are a JSON object: read and passed on while it is written.

Where the object ends is told by its structure, so its strings may hold any mark. Line breaks and
tabs that a model writes into a string as they are get escaped: that is no JSON, but it is meant.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from omlxd.worker.tool_calls.pieces import Arguments, Began, Broken, Ended, Piece

_LONGEST_HEAD = 512  # characters before the arguments
_BETWEEN = " \t\r\n,;[]"  # between the calls of one envelope
_OBJECT = re.compile(
    r'\{\s*"name"\s*:\s*"(?P<name>[^"\\]*)"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)'
)
_ESCAPES = {chr(code): json.dumps(chr(code))[1:-1] for code in range(0x20)}


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonFormat:
    """`head` stands before each call's arguments and has a group `name`; None = the call is an
    object with name and arguments. `close` may stand behind a call.
    """

    start: str
    end: str
    head: re.Pattern[str] | None = None
    close: str = ""
    objects: bool = True  # calls that are objects are read too


class JsonCallReader:
    """A `CallReader`."""

    def __init__(self, form: JsonFormat, names: Collection[str]) -> None:
        self._form, self._names = form, names
        self._state: Literal["between", "object", "arguments"] = "between"
        self._held = ""  # not read yet
        self._written = form.start  # of what is not part of a complete call
        self._object = _ObjectScan()
        self._text = ""  # of the object so far, made JSON
        self._begins_at = -1  # where the arguments begin in it; -1 = not known yet
        self._num_sent = 0  # characters of it, arguments only
        self._has_begun = False
        self._is_first = True
        self._rest: str | None = None

    @property
    def rest(self) -> str | None:
        return self._rest

    def feed(self, text: str) -> list[Piece]:
        self._held += text
        pieces: list[Piece] = []
        while self._rest is None and self._step(pieces):
            pass
        return pieces

    def end(self) -> list[Piece]:
        if self._written:
            self._written += self._held
            self._held = ""
            return self._break()
        # A part of the end mark is no text.
        self._rest = "" if self._form.end.startswith(self._held.strip(_BETWEEN)) else self._held
        return []

    def _step(self, pieces: list[Piece]) -> bool:
        """Whether there is more to do with what is held."""
        if self._state == "between":
            return self._between(pieces)
        return bool(self._held) and self._read_object(pieces)

    # ------------------------------------------------------------------ before an object

    def _between(self, pieces: list[Piece]) -> bool:
        bare = self._held.lstrip(_BETWEEN)
        for text in (self._held.lstrip(), bare):
            for mark in filter(None, (self._form.close, self._form.end)):
                if text.startswith(mark) and not self._written:
                    return self._pass(mark, text[len(mark) :])
                if mark.startswith(text):
                    return False
        if self._form.objects and bare.startswith("{"):
            return self._open(len(self._held) - len(bare), "object")
        return self._head(bare, pieces)

    def _pass(self, mark: str, behind: str) -> bool:
        """A mark behind a call."""
        if mark == self._form.end:
            self._rest = behind
            return False
        self._held = behind
        return True

    def _head(self, bare: str, pieces: list[Piece]) -> bool:
        head = self._form.head
        match = None if head is None else head.match(bare)
        if match is not None:
            at = len(self._held) - len(bare) + match.end()
            if match["name"] not in self._names:
                pieces += self._break()
                return False
            pieces.append(Began(match["name"]))
            self._has_begun, self._begins_at = True, 0
            return self._open(at, "arguments")
        if head is not None and len(bare) <= _LONGEST_HEAD and "{" not in bare:
            return False
        pieces += self._break()
        return False

    def _open(self, at: int, state: Literal["object", "arguments"]) -> bool:
        self._written += self._held[:at]
        self._held, self._state = self._held[at:], state
        self._object, self._text = _ObjectScan(), ""
        return True

    # ------------------------------------------------------------------ an object

    def _read_object(self, pieces: list[Piece]) -> bool:
        read, used = self._object.feed(self._held)
        self._written += self._held[:used]
        self._held = self._held[used:]
        self._text += read
        match = _OBJECT.match(self._text) if self._begins_at < 0 else None
        if match is not None and not self._begin(match["name"], match.end(), pieces):
            return False
        self._send(pieces)
        return not self._object.is_over or self._close(pieces)

    def _begin(self, name: str, at: int, pieces: list[Piece]) -> bool:
        if name not in self._names:
            pieces += self._break()
            return False
        pieces.append(Began(name))
        self._has_begun, self._begins_at = True, at
        return True

    def _send(self, pieces: list[Piece]) -> None:
        if self._begins_at < 0:
            return
        end = len(self._text)
        if self._state == "object":
            # The arguments end where the depth falls back to that of the object around them.
            end = min(end, self._object.inner_end(self._begins_at))
        begin = self._begins_at + self._num_sent
        if end > begin:
            pieces.append(Arguments(self._text[begin:end]))
            self._num_sent = end - self._begins_at

    def _close(self, pieces: list[Piece]) -> bool:
        try:
            value = json.loads(self._text, parse_constant=_refuse)
        except (ValueError, RecursionError):
            pieces += self._break()
            return False
        if self._begins_at < 0:
            call = _named_call(value, self._names)
            if call is None:
                pieces += self._break()
                return False
            name, arguments = call
            pieces += [Began(name), Arguments(json.dumps(arguments, ensure_ascii=False))]
        pieces.append(Ended())
        self._written, self._state = "", "between"
        self._begins_at, self._num_sent = -1, 0
        self._has_begun = self._is_first = False
        return True

    def _break(self) -> list[Piece]:
        """What is written is no call. Of one that did not begin all but the start mark is text."""
        broken = self._written if self._has_begun else self._form.start * self._is_first
        self._rest = self._written[len(broken) :] + self._held
        return [Broken(broken)] if broken else []


class _ObjectScan:
    """Where an object ends. It is read in pieces, of which each is made JSON."""

    def __init__(self) -> None:
        self.is_over = False
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._length = 0  # of the JSON text so far
        self._closes: list[int] = []  # where the depth fell to 1

    def inner_end(self, begin: int) -> int:
        """Where the value that begins there, one level below the object, ends; or far away."""
        return next((at for at in self._closes if at > begin), 1 << 62)

    def feed(self, text: str) -> tuple[str, int]:
        """The JSON text of what was read, and how many characters that was."""
        parts: list[str] = []
        for number, letter in enumerate(text):
            parts.append(self._read(letter))
            self._length += len(parts[-1])
            if letter in "}]" and not self._in_string:
                if self._depth == 1:
                    self._closes.append(self._length)
                elif self._depth == 0:
                    self.is_over = True
                    return "".join(parts), number + 1
        return "".join(parts), len(text)

    def _read(self, letter: str) -> str:
        if self._in_string:
            if self._escaped:
                self._escaped = False
            elif letter == "\\":
                self._escaped = True
            elif letter == '"':
                self._in_string = False
            return _ESCAPES.get(letter, letter)
        if letter == '"':
            self._in_string = True
        elif letter in "{[":
            self._depth += 1
        elif letter in "}]":
            self._depth -= 1
        return letter


def _named_call(value: Any, names: Collection[str]) -> tuple[str, dict[str, Any]] | None:
    """Name and arguments of a call in any order of keys; None if it is none that is offered."""
    if isinstance(value, dict) and isinstance(function := value.get("function"), dict):
        value = function
    if not isinstance(value, dict) or value.get("name") not in names:
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}", strict=False, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return None
    if arguments is None:
        arguments = {}
    return (value["name"], arguments) if isinstance(arguments, dict) else None


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")
