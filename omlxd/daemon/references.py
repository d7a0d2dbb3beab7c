"""Values that the spec only points to: keys in the environment or in files, template files.

Such a file is taken as omlx.toml itself is: only if nobody but its owner can have written it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from omlxd.daemon.files import Refused, trusted_text
from omlxd.mcp.config import McpFile, Value
from omlxd.models.inputs import resolve_path
from omlxd.spec.model import Spec
from omlxd.spec.positions import Path as KeyPath
from omlxd.spec.report import Problem

Locate = Callable[[KeyPath, str], Problem]  # a key's path and what is wrong → where it stands


@dataclass(frozen=True, slots=True)
class Resolved:
    """What the references of one spec stand for; a spec with `problems` is not accepted."""

    api_keys: tuple[str, ...]
    templates: Mapping[str, str]  # model → template text; "" = undeclared models
    tools: ToolInputs
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class ToolInputs:
    """What `[mcp]` points to. What is wrong here costs tool servers, and never the spec."""

    file: McpFile
    values: Mapping[str, Value]  # as written → what it stands for, and else why for nothing


def referenced_files(spec: Spec, home: Path) -> tuple[Path, ...]:
    """Every file that a `file:PATH` of the spec names, whether it is there or not."""
    written = [*spec.server.api_keys, *(reference for _, _, reference in _templates(spec))]
    written += _of_tool_servers(spec)
    found: dict[Path, None] = {}
    if spec.mcp.config and "\0" not in spec.mcp.config:
        found[resolve_path(home, spec.mcp.config)] = None
    for name in (one.removeprefix("file:") for one in written if one.startswith("file:")):
        with contextlib.suppress(RuntimeError):  # in the home of nobody
            if "\0" not in name:
                found[home / Path(name).expanduser()] = None
    return tuple(found)


def resolve_references(spec: Spec, home: Path, locate: Locate) -> Resolved:
    """Read every `env:NAME` and `file:PATH`; a relative path is below `home`."""
    problems: list[Problem] = []
    keys: list[str] = []
    for index, written in enumerate(spec.server.api_keys):
        value, wrong = _value(written, home)
        if not wrong and not value.strip():
            wrong = f"{written} holds an empty key"
        if wrong:
            problems.append(locate(("server", "api_keys", index), wrong))
        keys.append(value.strip())
    templates: dict[str, str] = {}
    read: dict[str, str] = {}  # an inherited reference is one reference, and one problem
    for path, name, written in _templates(spec):
        if written not in read:
            read[written], wrong = _value(written, home, environment=False)
            if wrong:
                problems.append(locate(path, wrong))
        templates[name] = read[written]
    return Resolved(tuple(keys), templates, _tools(spec, home), tuple(problems))


def _templates(spec: Spec) -> Iterator[tuple[KeyPath, str, str]]:
    if spec.defaults.chat_template is not None:
        yield ("defaults", "chat_template"), "", spec.defaults.chat_template
    for name, model in spec.models.items():
        if model.chat_template is not None:
            yield ("models", name, "chat_template"), name, model.chat_template


def _of_tool_servers(spec: Spec) -> Iterator[str]:
    for server in spec.mcp.servers.values():
        yield from (*server.env.values(), *server.headers.values())


def _tools(spec: Spec, home: Path) -> ToolInputs:
    values = {written: _value(written, home) for written in _of_tool_servers(spec)}
    stripped = {
        written: (value.rstrip("\r\n"), wrong) for written, (value, wrong) in values.items()
    }
    name = spec.mcp.config
    if not name:
        return ToolInputs(McpFile(), stripped)
    text, wrong = _content(str(resolve_path(home, name)), home)
    return ToolInputs(McpFile(path=name, text=text, problem=wrong), stripped)


def _value(written: str, home: Path, *, environment: bool = True) -> tuple[str, str]:
    """The value, or why there is none."""
    if environment and written.startswith("env:"):
        name = written.removeprefix("env:")
        value = os.environ.get(name)
        return (value, "") if value is not None else ("", f"omlxd's environment has no {name}")
    if written.startswith("file:"):
        return _content(written.removeprefix("file:"), home)
    return written, ""


def _content(name: str, home: Path) -> tuple[str, str]:
    """Text of a file, or why there is none."""
    try:
        return trusted_text(home / Path(name).expanduser()), ""
    except Refused as refusal:
        return "", f"file:{name} {refusal}" + (f"; {refusal.hint}" if refusal.hint else "")
    except OSError as error:
        return "", f"cannot read {name}: {error.strerror}"
    except UnicodeDecodeError:
        return "", f"cannot read {name}: it is not UTF-8"
    except (RuntimeError, ValueError) as error:  # "~nobody", a NUL in the name
        return "", f"cannot read {name!r}: {error}"
