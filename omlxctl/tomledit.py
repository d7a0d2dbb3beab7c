"""Values put into TOML text that people keep. Pure.

All that is not replaced stays byte for byte. Tables are found by their headers and keys by their
lines; a text where that leads to anything but what was meant is refused.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Sequence
from typing import Any

from omlxctl.textedit import Entry, NotEditable
from omlxd.spec.keys import quoted

_HEADER = re.compile(r"^[ \t]*\[", re.MULTILINE)
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_VALUE = r"""(?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^#\s]+)"""


def put(text: str, entries: Iterable[Entry]) -> str:
    """`text` with every entry in it; values are strings and whole numbers. Raises NotEditable."""
    wanted = value_of(text)
    for entry in entries:
        route = [step for step in entry.route if isinstance(step, str)]
        assert len(route) == len(entry.route), "lists in TOML are not edited"
        if _found(wanted, route) == entry.value:
            continue
        _set(wanted, route, entry.value)
        text = _put(text, route, entry.value)
        if not _says(text, wanted):
            raise NotEditable(f"is written in a way that {'.'.join(route)} cannot be put into")
    return text


def value_of(text: str) -> dict[str, Any]:
    """What the text says. Raises NotEditable."""
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise NotEditable(f"is not valid TOML: {error}") from None


def _says(text: str, wanted: dict[str, Any]) -> bool:
    try:
        return value_of(text) == wanted
    except NotEditable:
        return False


def _found(document: Any, route: Sequence[str]) -> Any:
    for step in route:
        document = document.get(step) if isinstance(document, dict) else None
    return document


def _set(document: dict[str, Any], route: Sequence[str], value: Any) -> None:
    for step in route[:-1]:
        inner = document.setdefault(step, {})
        if not isinstance(inner, dict):
            raise NotEditable(f"has something else where {step} must be a table")
        document = inner
    document[route[-1]] = value


def _put(text: str, route: Sequence[str], value: Any) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    *table, name = route
    line = f"{_key(name)} = {quoted(value) if isinstance(value, str) else json.dumps(value)}"
    section = _section(text, table)
    if section is None:
        gap = newline if text.strip() else ""
        end = "" if not text or text.endswith("\n") else newline
        header = f"[{'.'.join(map(_key, table))}]"
        return f"{text}{end}{gap}{header}{newline}{line}{newline}"
    start, end_at = section
    body = text[start:end_at]
    old = re.compile(rf"^[ \t]*{re.escape(_key(name))}[ \t]*=[ \t]*{_VALUE}", re.MULTILINE)
    if old.search(body):
        return text[:start] + old.sub(lambda _: line, body, count=1) + text[end_at:]
    at = start + _last_line(body)
    before = newline if text[:at] and not text[:at].endswith("\n") else ""
    gap = newline if at == 0 and text.strip() else ""
    return text[:at] + before + line + newline + gap + text[at:]


def _section(text: str, table: Sequence[str]) -> tuple[int, int] | None:
    """From behind the header to the next one; for no table, what stands before the first."""
    start = 0
    if table:
        name = r"[ \t]*\.[ \t]*".join(re.escape(_key(step)) for step in table)
        found = re.search(rf"^[ \t]*\[[ \t]*{name}[ \t]*\][^\n]*(?:\n|\Z)", text, re.MULTILINE)
        if found is None:
            return None
        start = found.end()
    following = _HEADER.search(text, start)
    return start, following.start() if following else len(text)


def _last_line(body: str) -> int:
    """Behind the last line of a section that is a key; 0 where none is."""
    ends = [m.end() for m in re.finditer(r"^[ \t]*[^#\s][^\n]*(?:\n|\Z)", body, re.MULTILINE)]
    return ends[-1] if ends else 0


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else quoted(name)
