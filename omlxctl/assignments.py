"""KEY=VALUE of `omlxctl set`: the value is TOML, a bare word is a string. Pure."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from typing import Any

KEY = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
# A value that begins like this was meant as TOML; taking it for a word would hide the typo.
_QUOTED = ('"', "'", "[", "{")


def parse_key(text: str) -> str:
    """A key of [models.X], dotted where it is in a table of its own. Raises ValueError."""
    if not KEY.fullmatch(text):
        raise ValueError(f"{text!r} is not a key; keys look like ttl or sampling.temperature")
    return text


def parse_assignments(texts: Sequence[str]) -> dict[str, Any]:
    """Every KEY=VALUE by its key. Raises ValueError with the one that is wrong."""
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"{text!r} is not KEY=VALUE")
        key = parse_key(name.strip())
        if key in values:
            raise ValueError(f"{key} is given twice")
        values[key] = parse_value(value.strip())
    return values


def parse_value(text: str) -> Any:
    """A TOML value, else the text itself: 0.7, true, "x", ["a"], 30m. Raises ValueError."""
    if not text:
        raise ValueError('a value is missing; write "" for an empty string')
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError as error:
        if text.startswith(_QUOTED):
            raise ValueError(f"{text} is not a TOML value: {error}") from error
        return text
    if set(parsed) != {"value"}:
        raise ValueError(f"{text!r} is more than one TOML value")
    try:
        json.dumps(parsed["value"], allow_nan=False)
    except (TypeError, ValueError) as error:  # a date, a time, inf or nan: no key takes one
        if text.startswith(_QUOTED):
            raise ValueError(f"{text} holds what is not a TOML value of any key") from error
        return text
    return parsed["value"]
