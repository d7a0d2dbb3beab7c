#!/usr/bin/env python3
"""Writes what is said about every key of omlx.toml from its schema.

scripts/key_docs.py            update etc/omlx.toml.example and the key list in man/omlx.toml.5
scripts/key_docs.py --check    exit 1 if one of them is not current
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import tomli_w

from omlxd.spec.keys import ANY, Key, keys
from omlxd.spec.model import File

ROOT: Final = Path(__file__).resolve().parent.parent
EXAMPLE: Final = ROOT / "etc" / "omlx.toml.example"
PAGE: Final = ROOT / "man" / "omlx.toml.5"
BEGIN: Final = '.\\" keys: begin (scripts/key_docs.py)\n'
END: Final = '.\\" keys: end\n'

# What keys without a default may look like.
SAMPLES: Final[dict[str, Any]] = {
    "max_memory": "64GB",
    "kind": "llm",
    "max_context": 32768,
    "max_output_tokens": 4096,
    "max_concurrent_requests": 2,
    "chat_template": "file:templates/mine.jinja",
    "temperature": 0.7,
    "top_p": 0.95,
    "top_k": 20,
    "min_p": 0.05,
    "seed": 7,
    "repetition_penalty": 1.1,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
    "path": "/Volumes/models/mine",
    "aliases": ["120b"],
    "command": "npx",
    "args": ["-y", "@modelcontextprotocol/server-filesystem", "/Users/me/src"],
    "env": {},
    "url": "",
    "headers": {},
    "tools": ["read_file"],
}
NAMES: Final = {"models": "gpt-oss-120b-MXFP4-Q8", "mcp.servers": "filesystem"}

OPENING: Final = """\
# omlx.toml: what omlxd serves and how. Every key is here with its default; the file of a new user
# can be empty. Copy what you want to change to ~/.omlx/omlx.toml. omlx.toml(5) has the details.
#
# Sizes: "64GB", "512MB" (powers of 1024), bytes; "80%" where a share is said to be accepted.
# Durations: "300s", "5m", "1h", "1h30m", seconds; "never" where said so.
# In brackets, how a change takes effect: live = at once; drain = when the engine has finished what
# it runs; rebind = the listener moves.
"""


def toml(value: Any) -> str:
    """One value on one line."""
    if value == {}:
        return "{}"
    if isinstance(value, list):
        return f"[{', '.join(toml(item) for item in value)}]"
    return tomli_w.dumps({"v": value}).partition("= ")[2].strip()


def limit(key: Key) -> str:
    """What this version accepts of a key whose feature is not there; "" = everything."""
    if key.built:
        return ""
    return " or ".join(["only the default", *map(toml, key.also)])


def groups() -> Iterator[tuple[tuple[str, ...], list[Key]]]:
    """Tables with their keys; a model's table has only what [defaults] has not."""
    for table, members in groupby(keys(), key=lambda key: key.path[:-1]):
        names = tuple(str(part) for part in table)
        if names[:2] == ("models", ANY) and len(names) > 2:
            continue
        only = [key for key in members if names[0] != "models" or not _is_default(key)]
        if only:
            yield names, only


def _is_default(key: Key) -> bool:
    return any(other.path == ("defaults", *key.path[2:]) for other in keys())


# ------------------------------------------------------------------ etc/omlx.toml.example


def example() -> str:
    return OPENING + "".join(_example_table(table, members) for table, members in groups())


def _example_table(table: tuple[str, ...], members: list[Key]) -> str:
    is_named = ANY in table
    name = NAMES.get(".".join(part for part in table if part != ANY), "")
    header = f"[{'.'.join(toml(name) if part == ANY else part for part in table)}]"
    lines = ["", f"# {header}" if is_named else header]
    if table == ("models", ANY):
        lines[1:1] = [
            "# One table per model, by folder name or org/name; all keys of [defaults] and:"
        ]
    for key in members:
        when = f"{key.reload}; {limit(key)} in this version" if limit(key) else key.reload
        lines.append(f"# {key.doc} ({when})")
        is_sample = is_named or key.default is None
        value = SAMPLES[str(key.path[-1])] if is_sample else key.default
        lines.append(f"{'# ' if is_sample else ''}{key.path[-1]} = {toml(value)}")
    return "\n".join(lines) + "\n"


# ------------------------------------------------------------------ man/omlx.toml.5


def roff(text: str) -> str:
    """Plain text for roff: nothing in it is a request or an escape."""
    out = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq").replace("~", "\\(ti")
    return f"\\&{out}" if out.startswith((".", "'")) else out


def key_list() -> str:
    return "".join(_page_table(table, members) for table, members in groups())


def _page_table(table: tuple[str, ...], members: list[Key]) -> str:
    name = ".".join("NAME" if part == ANY else part for part in table)
    lines = [f".SS [{roff(name)}]"]
    field = File.model_fields[table[0]]
    if len(table) == 1 and isinstance(field.annotation, type) and field.annotation.__doc__:
        lines.append(roff(field.annotation.__doc__))
    if table == ("models", ANY):
        lines.append("One model, by folder name or org/name: every key of [defaults], and:")
    for key in members:
        value = "not set" if key.default is None else toml(key.default)
        lines += [
            ".TP",
            f'.BR {roff(str(key.path[-1]))} " (" {key.reload} ")"',
            f"{roff(key.doc[0].upper() + key.doc[1:])}.",
            f"Default: {roff(value)}.",
        ]
        if limit(key):
            lines.append(f"This version accepts {roff(limit(key))}.")
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The page with its key list renewed; the prose around it is kept."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{key_list()}{END}{after}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    stale = 0
    for path, text in ((EXAMPLE, example()), (PAGE, page(PAGE.read_text()))):
        if path.exists() and path.read_text() == text:
            continue
        stale = 1
        if check:
            print(
                f"{path.relative_to(ROOT)} is not current; run scripts/key_docs.py", file=sys.stderr
            )
        else:
            path.write_text(text)
    return stale if check else 0


if __name__ == "__main__":
    sys.exit(main())
