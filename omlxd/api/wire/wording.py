"""What a parameter must be, in words that a client's user understands. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from omlxd.errors import RequestInvalid

_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}
_BOUNDS = {">=": "of at least", "<=": "of at most", ">": "above", "<": "below"}
_UNITS = {"str": "character", "array": "entry", "object": "key"}
_PLURALS = {"character": "characters", "entry": "entries", "key": "keys"}

_KIND = re.compile(r"Expected `([^`]+)`, got `\w+`")
_BOUND = re.compile(r"Expected `(\w+)` (of length )?([<>]=?) (\S+)")
_STEP = re.compile(r"\[(\d+|\.\.\.)\]|\.?([^.\[]+)")
_LONGEST_QUOTE = 40  # characters


def refusal(problem: str, body: Mapping[str, Any]) -> RequestInvalid:
    """A validation error of msgspec ("Expected … - at `$.stop[3]`"), the parameter first."""
    what, at, where = problem.rpartition(" - at ")
    if not at:
        return RequestInvalid(f"{problem}.")
    key, _, inside = where.partition(" in ")  # "`key` in `$.logit_bias`"
    path = (inside or key).strip("`").removeprefix("$.")
    must = _must_be(what)
    if must is None:
        return RequestInvalid(f"{path}: {what}.", param=path)
    if inside or path.endswith("[...]"):  # which of them it was is not told
        path = path.removesuffix("[...]")
        each = "key" if inside else "value"
        return RequestInvalid(f"{path}: every {each} must be {must}.", param=path)
    sent = _shown(_at(body, path), counted="of length" in what)
    return RequestInvalid(f"{path}: must be {must}, not {sent}.", param=path)


def _must_be(what: str) -> str | None:
    if kind := _KIND.fullmatch(what):
        kinds = [_KINDS.get(name) for name in kind[1].split(" | ") if name != "null"]
        return None if None in kinds else " or ".join(filter(None, kinds))
    bound = _BOUND.fullmatch(what)
    if bound is None or bound[1] not in _KINDS:
        return None
    limit = bound[4].removesuffix(".0")
    told = f"{_KINDS[bound[1]]} {_BOUNDS[bound[3]]} {limit}"
    if bound[2]:
        unit = _UNITS[bound[1]]
        told += f" {unit if limit == '1' else _PLURALS[unit]}"
    return told


def _at(body: Any, path: str) -> Any:
    for index, name in _STEP.findall(path):
        body = body[int(index)] if index else body[name]
    return body


def _shown(value: Any, *, counted: bool) -> str:
    if counted and value:
        return str(len(value))
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_QUOTE else text[: _LONGEST_QUOTE - 1] + "…"
