"""A desired state as a flat list of keys and values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from omlxd.spec.fields import Reload
from omlxd.spec.model import Table
from omlxd.spec.positions import Path


@dataclass(frozen=True, slots=True)
class Leaf:
    """One key with its value as TOML would write it; None = not set and no default."""

    path: Path
    value: Any
    reload: Reload


def leaves(table: Table, base: Path = ()) -> Iterator[Leaf]:
    """Every key of a table and the tables in it, in the order of the schema."""
    written = table.model_dump(mode="json")
    for name, field in type(table).model_fields.items():
        extra: Any = field.json_schema_extra
        yield from _below((*base, name), getattr(table, name), written[name], extra)


def _below(path: Path, value: Any, written: Any, extra: Any) -> Iterator[Leaf]:
    if isinstance(value, Table):
        yield from leaves(value, path)
    elif isinstance(value, dict) and (value or extra is None):
        for name, inner in value.items():
            yield from _below((*path, name), inner, written[name], extra)
    else:
        yield Leaf(path, written, extra["reload"])
