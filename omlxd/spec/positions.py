"""Where every key of a TOML document stands.

Only for text that tomllib has accepted: the scan then needs no error paths, and it follows the
grammar just far enough to find keys and array elements. Lines and columns count from 1; columns
are characters. Keys inside inline tables and arrays of tables are found too.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from collections.abc import Mapping

Path = tuple[str | int, ...]
Position = tuple[int, int]

_BLANK = re.compile(r"[ \t]*")
_GAP = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_KEY = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")
_STRING = re.compile(
    r'''"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*\'''', re.DOTALL
)
_SCALAR = re.compile(r"[^,\]}#\n]+")


def positions(text: str) -> dict[Path, Position]:
    """Path to (line, column) for every table, key and array element of valid TOML."""
    return _Scan(text).run()


def nearest(known: Mapping[Path, Position], path: Path) -> Position:
    """The position of the longest leading part of `path` that is in the document."""
    while path and path not in known:
        path = path[:-1]
    return known.get(path, (1, 1))


class _Scan:
    """One walk over one text. Methods take an offset and return the one behind what they read."""

    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n")
        self.line_starts = [0, *(match.end() for match in re.finditer("\n", self.text))]
        self.found: dict[Path, Position] = {}
        self.last_index: dict[Path, int] = {}  # array of tables → index of its newest element

    def run(self) -> dict[Path, Position]:
        table: Path = ()
        at = self.skip(_GAP, 0)
        while at < len(self.text):
            if self.text.startswith("[[", at):
                table, at = self.array_header(at)
            elif self.text[at] == "[":
                table, at = self.key(self.skip(_BLANK, at + 1), ())
                at += 1
            else:
                at = self.pair(at, table)
            at = self.skip(_GAP, at)
        return self.found

    def skip(self, pattern: re.Pattern[str], at: int) -> int:
        match = pattern.match(self.text, at)
        assert match is not None, f"not TOML at offset {at}"
        return match.end()

    def put(self, path: Path, at: int) -> None:
        if path not in self.found:
            line = bisect_right(self.line_starts, at)
            self.found[path] = (line, at - self.line_starts[line - 1] + 1)

    def part(self, at: int) -> tuple[str, int]:
        """One part of a dotted key, and the offset of what follows the blanks behind it."""
        end = self.skip(_KEY, at)
        written = self.text[at:end]
        name = _unquoted(written) if written[0] in "\"'" else written
        return name, self.skip(_BLANK, end)

    def key(self, at: int, base: Path) -> tuple[Path, int]:
        """A dotted key; a part that is an array of tables means its newest element."""
        path = base
        while True:
            name, end = self.part(at)
            path = (*path, name)
            self.put(path, at)
            if path in self.last_index:
                path = (*path, self.last_index[path])
            if self.text[end] != ".":
                return path, end
            at = self.skip(_BLANK, end + 1)

    def array_header(self, at: int) -> tuple[Path, int]:
        """`[[a.b]]`: a new element of the array that the last part names."""
        base: Path = ()
        at = self.skip(_BLANK, at + 2)
        name, end = self.part(at)
        while self.text[end] == ".":
            base = (*base, name)
            self.put(base, at)
            if base in self.last_index:
                base = (*base, self.last_index[base])
            at = self.skip(_BLANK, end + 1)
            name, end = self.part(at)
        array = (*base, name)
        self.put(array, at)
        self.last_index[array] = self.last_index.get(array, -1) + 1
        table = (*array, self.last_index[array])
        self.put(table, at)
        return table, end + 2

    def pair(self, at: int, table: Path) -> int:
        path, at = self.key(at, table)
        return self.value(self.skip(_BLANK, at + 1), path)

    def value(self, at: int, path: Path) -> int:
        match self.text[at]:
            case "[":
                return self.array(at, path)
            case "{":
                return self.inline_table(at, path)
            case '"' | "'":
                return self.skip(_STRING, at)
            case _:
                return self.skip(_SCALAR, at)

    def array(self, at: int, path: Path) -> int:
        at, index = self.skip(_GAP, at + 1), 0
        while self.text[at] != "]":
            self.put((*path, index), at)
            at = self.skip(_GAP, self.value(at, (*path, index)))
            at, index = self.behind_comma(at), index + 1
        return at + 1

    def inline_table(self, at: int, path: Path) -> int:
        at = self.skip(_GAP, at + 1)
        while self.text[at] != "}":
            at = self.behind_comma(self.skip(_GAP, self.pair(at, path)))
        return at + 1

    def behind_comma(self, at: int) -> int:
        return self.skip(_GAP, at + 1) if self.text[at] == "," else at


def _unquoted(written: str) -> str:
    (name,) = tomllib.loads(f"{written} = 0")
    return name
