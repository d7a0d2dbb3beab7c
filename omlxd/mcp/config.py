"""Which tool servers are asked for: `[mcp]` of the spec and an mcp.json. Pure.

An mcp.json is written for several programs, so one entry that cannot be used is off with a reason
and takes nothing else with it; keys without a meaning here are told as notes. Where both files have
a server, omlx.toml's counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from pydantic import ValidationError

from omlxd.mcp.types import Desired, Limits, Server
from omlxd.spec.model import Mcp, McpServer

Value = tuple[str, str]  # what a reference stands for, and else why it stands for nothing
Lookup = Callable[[str], Value]

_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KNOWN = frozenset(("command", "args", "env", "url", "headers", "type", "tools", "disabled"))
_TYPES = {"stdio": "command", "http": "url", "streamable-http": "url", "streamableHttp": "url"}
_TEXT_KEYS = ("command", "url")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpFile:
    """An mcp.json as it was read; with a `problem` there is no text."""

    path: str = ""
    text: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class FromFile:
    """The servers of an mcp.json, or why there are none."""

    servers: Mapping[str, Server]
    problem: str = ""


def limits(mcp: Mcp) -> Limits:
    return Limits(
        max_rounds=mcp.max_rounds,
        call_timeout_s=mcp.call_timeout,
        start_timeout_s=mcp.start_timeout,
        max_output_bytes=mcp.max_output.of(0),
        ttl_s=mcp.ttl,
    )


def desired(mcp: Mcp, from_file: Mapping[str, Server], lookup: Lookup, *, file: str) -> Desired:
    """All servers. `lookup` resolves "env:NAME" and "file:PATH"; `file` is named as the source."""
    own = {name: _of_table(name, table, lookup, file) for name, table in mcp.servers.items()}
    return Desired(servers={**from_file, **own}, limits=limits(mcp))


def _of_table(name: str, table: McpServer, lookup: Lookup, file: str) -> Server:
    problems: list[str] = []

    def resolved(values: Mapping[str, str]) -> dict[str, str]:
        found = {}
        for key, written in values.items():
            found[key], wrong = lookup(written)
            if wrong:
                problems.append(f"{key}: {wrong}")
        return found

    return Server(
        name=name,
        source=file,
        command=table.command,
        args=table.args,
        env=resolved(table.env),
        url=table.url,
        headers=resolved(table.headers),
        allowed=table.tools,
        off="; ".join(problems),
    )


# ------------------------------------------------------------------ mcp.json


def read_file(text: str, path: str, variable: Callable[[str], str | None]) -> FromFile:
    """The servers of an mcp.json. `variable` is a variable of omlxd's environment, or None.

    `${NAME}` and `${NAME:-default}` stand for variables in args, env, url and headers, and nowhere
    else. Names no value of the file: some are secrets.
    """
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        what = str(error).removeprefix("JSON is malformed: ") or "nested too deeply"
        return FromFile({}, f"is not valid JSON: {what}")
    servers = document.get("mcpServers") if isinstance(document, dict) else None
    if not isinstance(servers, dict):
        return FromFile({}, 'has no object "mcpServers" at its top')
    return FromFile(
        {name: _of_entry(name, entry, path, variable) for name, entry in servers.items()}
    )


def _of_entry(name: str, entry: Any, path: str, variable: Callable[[str], str | None]) -> Server:
    if not isinstance(entry, dict):
        return Server(name=name, source=path, off="its entry is not an object")
    notes = tuple(f'"{key}" has no meaning here' for key in entry if key not in _KNOWN)
    try:
        values = _expanded(entry, variable)
        table = McpServer.model_validate(_as_table(values))
        _check_name(name)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        why = f"{place}: {first['msg'].removeprefix('Value error, ')}"
        return Server(name=name, source=path, off=why, notes=notes)
    except ValueError as error:
        return Server(name=name, source=path, off=str(error), notes=notes)
    return Server(
        name=name,
        source=path,
        command=table.command,
        args=table.args,
        env=table.env,
        url=table.url,
        headers=table.headers,
        allowed=table.tools,
        off="disabled in its file" if entry.get("disabled") is True else "",
        notes=notes,
    )


def _check_name(name: str) -> None:
    Mcp.model_validate({"servers": {name: {"command": "any"}}})


def _as_table(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry as a table of omlx.toml. Raises ValueError for what no table can say."""
    table = {key: value for key, value in entry.items() if key in McpServer.model_fields}
    kind = entry.get("type")
    if kind is not None and not (isinstance(kind, str) and kind in _TYPES):
        raise ValueError(f"type {kind!r} is not served; {', '.join(_TYPES)} are")
    has = [key for key in _TEXT_KEYS if entry.get(key)]
    if len(has) != 1:
        raise ValueError(f"it needs either command or url, and has {'both' if has else 'neither'}")
    if kind is not None and _TYPES[kind] != has[0]:
        raise ValueError(f"type {kind!r} needs {_TYPES[kind]}")
    if table.get("tools") == ["*"]:
        del table["tools"]
    return table


def _expanded(entry: Mapping[str, Any], variable: Callable[[str], str | None]) -> dict[str, Any]:
    def deep(value: Any) -> Any:
        if isinstance(value, str):
            return _expand(value, variable)
        if isinstance(value, list):
            return [deep(inner) for inner in value]
        if isinstance(value, dict):
            return {key: deep(inner) for key, inner in value.items()}
        return value

    where = ("args", "env", "url", "headers")
    return {key: deep(value) if key in where else value for key, value in entry.items()}


def _expand(text: str, variable: Callable[[str], str | None]) -> str:
    def value(match: re.Match[str]) -> str:
        name, has_default, default = match[1].partition(":-")
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"${{{match[1]}}} is no variable; ${{NAME}} and ${{NAME:-default}} are"
            )
        found = variable(name)
        if found:
            return found
        if not has_default:
            raise ValueError(f"omlxd's environment has no {name}")
        return default

    return _VARIABLE.sub(value, text)
