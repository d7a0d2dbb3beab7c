"""Bodies that real clients sent, recorded; every sentence in them is filler.

`tests/fixtures/clients/DIALECT.jsonl.xz` has one to a line: {"name", "body"}. The same line of
text is the same filler everywhere, so turns of one conversation still begin alike.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

FOLDER = Path(__file__).resolve().parents[1] / "fixtures" / "clients"

Body = dict[str, Any]


@cache
def client_bodies(dialect: str) -> dict[str, Body]:
    """Every body of a dialect by name; not to be changed in place."""
    lines = lzma.decompress((FOLDER / f"{dialect}.jsonl.xz").read_bytes()).splitlines()
    return {line["name"]: line["body"] for line in map(msgspec.json.decode, lines)}


def earlier_turns(body: Body) -> Iterator[Body]:
    """The bodies that led to this one: its messages up to each of the model's own."""
    for number, message in enumerate(body["messages"]):
        if message["role"] == "assistant":
            yield {**body, "messages": body["messages"][:number]}
