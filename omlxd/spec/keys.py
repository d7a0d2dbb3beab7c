"""How keys are spelled, and the list of all there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from omlxd.spec.fields import Reload
from omlxd.spec.model import Defaults, File, ModelSpec, Table
from omlxd.spec.positions import Path

ANY: Final = "*"  # stands for a name that the user chooses
HIDDEN: Final = "***"
_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of the schema. `default` is as written in TOML; None = no default.

    A key that is not built takes only its default and the values in `also`.
    """

    path: Path
    default: Any
    reload: Reload
    doc: str
    built: bool
    also: tuple[Any, ...]
    secret: bool


def dotted(path: Path) -> str:
    """`models."X".ttl`, `server.api_keys[0]`; a model's name is always in quotes."""
    out = ""
    for depth, part in enumerate(path):
        if isinstance(part, int):
            out += f"[{part}]"
            continue
        is_model = depth == 1 and path[0] == "models"
        name = part if not is_model and _BARE.fullmatch(part) else quoted(part)
        out += f".{name}" if out else name
    return out


def quoted(text: str) -> str:
    """A TOML basic string."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def inner_table(field: FieldInfo) -> tuple[type[Table], bool] | None:
    """The table type in a field, and whether the field holds many of them by name."""
    for candidate in (field.annotation, *get_args(field.annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            assert issubclass(candidate, Table)
            return candidate, candidate is not field.annotation
    return None


def keys() -> Iterator[Key]:
    """Every key of the schema, tables flattened, in the order of the schema."""
    return _keys_of(File, (), built=True)


def tables_with(name: str) -> list[str]:
    """The tables that have a key of this name, as headers."""
    paths = [key.path[:-1] for key in keys() if key.path[-1] == name]
    return [f"[{dotted(path)}]".replace(f'"{ANY}"', '"NAME"') for path in paths if path]


def is_secret(key: str) -> bool:
    """Whether literal values of a dotted key must not be shown."""
    return _SECRET.fullmatch(key) is not None


def redacted(key: str, value: Any) -> Any:
    """`value` of a dotted key for people: literal secrets hidden, "env:…" and "file:…" kept."""
    if not is_secret(key):
        return value
    if isinstance(value, list | tuple):
        return [redacted(key, entry) for entry in value]
    if isinstance(value, dict):
        return {name: redacted(key, entry) for name, entry in value.items()}
    if isinstance(value, str) and value.startswith(("env:", "file:")):
        return value
    return HIDDEN


def _keys_of(table: type[Table], base: Path, *, built: bool) -> Iterator[Key]:
    for name, field in table.model_fields.items():
        path = (*base, name)
        extra: Any = field.json_schema_extra
        is_built = built and (extra is None or extra["built"])
        inner = inner_table(field)
        if inner is not None:
            below, many = inner
            yield from _keys_of(below, (*path, ANY) if many else path, built=is_built)
        else:
            yield Key(
                path=path,
                default=table.model_construct().model_dump(mode="json", include={name})[name],
                reload=extra["reload"],
                doc=field.description or "",
                built=is_built,
                also=tuple(extra["also"]),
                secret=extra["secret"],
            )


def _pattern(path: Path) -> str:
    """Of a dotted key, and of all that is in it."""
    parts = (_ANY_NAME if part == ANY else re.escape(str(part)) for part in path)
    return r"\.".join(parts) + r"([.\[].*)?"


_ANY_NAME: Final = r'([A-Za-z0-9_-]+|"([^"\\]|\\.)*")'
_SECRET: Final = re.compile("|".join(_pattern(key.path) for key in keys() if key.secret), re.DOTALL)
NOT_FOR_MANY: Final = frozenset(ModelSpec.model_fields) - frozenset(Defaults.model_fields)
