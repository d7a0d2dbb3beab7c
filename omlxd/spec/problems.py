"""What is wrong with a file, in sentences: from pydantic's and tomllib's errors to `Problem`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import tomli_w
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from omlxd.spec.keys import (
    NOT_FOR_MANY,
    dotted,
    inner_table,
    is_secret,
    quoted,
    redacted,
    tables_with,
)
from omlxd.spec.model import File, Table
from omlxd.spec.positions import Path
from omlxd.spec.report import Problem

_AT = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_SENTENCES = {
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "string_type": "must be a string in quotes",
    "tuple_type": "must be a list in square brackets",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "literal_error": "must be {expected}",
    "greater_than": "must be above {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be below {lt:g}",
    "less_than_equal": "must be at most {le:g}",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong at a path of a document; where that stands is looked up afterwards."""

    path: Path
    message: str
    hint: str = ""


def syntax_problem(file: str, text: str, error: ValueError | RecursionError) -> Problem:
    """tomllib stops at the first error of a file; its message carries the position."""
    if isinstance(error, RecursionError):
        return Problem(file, 1, 1, "", "not valid TOML: nested too deeply")
    message, lines = str(error), text.split("\n")
    line, column = len(lines), len(lines[-1]) + 1
    match = _AT.search(message)
    if match is not None and match[1] is not None:
        line, column = int(match[1]), int(match[2])
    return Problem(file, line, column, "", f"not valid TOML: {_AT.sub('', message)}")


def findings(error: ValidationError, document: Mapping[str, Any]) -> list[Finding]:
    """Every problem of one document that the schema found."""
    details = error.errors(include_url=False)
    return [_finding(detail, _path_in(document, detail["loc"])) for detail in details]


def _path_in(document: Mapping[str, Any], loc: tuple[str | int, ...]) -> Path:
    """pydantic's `loc` without the parts that are not keys of the document."""
    path: Path = ()
    here: Any = document
    for part in loc:
        is_element = isinstance(here, list) and isinstance(part, int)
        if not is_element and not (isinstance(here, Mapping) and part in here):
            break
        path, here = (*path, part), here[part]
    return path


def _finding(detail: ErrorDetails, path: Path) -> Finding:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_key(path, detail["input"])
    if kind == "not_built":
        return Finding(path, detail["msg"], "remove the key, or leave it at its default")
    if kind == "value_error":
        return Finding(path, _with_value(path, detail["input"], str(context["error"])))
    if kind == "literal_error":
        context = {"expected": context["expected"].replace("'", '"')}
    sentence = _SENTENCES.get(kind, detail["msg"]).format(**context)
    return Finding(path, f"{sentence}, not {_shown(path, detail['input'])}")


def _with_value(path: Path, value: Any, sentence: str) -> str:
    """The value first, unless it is long or a secret."""
    if is_secret(dotted(path)) or isinstance(value, dict | list | tuple):
        return sentence
    return f"{_shown(path, value)}: {sentence}"


def _shown(path: Path, value: Any) -> str:
    """The value as it would be written in TOML, short, without secrets."""
    shown = redacted(dotted(path), value)
    if isinstance(shown, dict):
        return "a table"
    if isinstance(shown, list):
        return "a list"
    written = tomli_w.dumps({"v": shown}).partition("= ")[2].strip()
    return written if len(written) <= 60 else f"{written[:57]}..."


def _unknown_key(path: Path, value: Any) -> Finding:
    *parents, name = path
    message = f'unknown key "{name}"'
    if tuple(parents) == ("defaults",) and name in NOT_FOR_MANY:
        reason = f'"{name}" belongs to one model and cannot be a default of all'
        return Finding(path, reason, 'set it under [models."NAME"]')
    known = _table_at(tuple(parents)).model_fields
    close = get_close_matches(str(name), known, n=1, cutoff=0.6)
    close += [field for field in known if len(str(name)) > 2 and field.startswith(str(name))]
    if close:
        return Finding(path, message, f'did you mean "{close[0]}"?')
    if len(parents) >= 2 and parents[0] == "models" and isinstance(value, Mapping):
        full = ".".join(str(part) for part in path[1:])
        return Finding(path, message, f"a name with dots needs quotes: [models.{quoted(full)}]")
    homes = tables_with(str(name))
    hint = f'"{name}" belongs in {" or ".join(homes)}' if homes else ""
    return Finding(path, message, hint)


def _table_at(path: Path) -> type[Table]:
    table: type[Table] = File
    many = False
    for part in path:
        if many:
            many = False
            continue
        inner = inner_table(table.model_fields[str(part)])
        assert inner is not None, path
        table, many = inner
    return table
