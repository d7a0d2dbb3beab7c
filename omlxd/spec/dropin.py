"""The drop-in that `omlxctl set`, `unset`, `pin` and `unpin` write: `[models.X]` keys only.

Texts given to these functions are valid TOML (they were read without syntax problems).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import tomli_w

NAME: Final = "90-omlxctl.toml"
_HEADER: Final = (
    "# Written by omlxd for `omlxctl set`, `unset`, `pin` and `unpin`; comments are not kept.\n"
    "# A key saved in omlx.toml later is taken out of this file again.\n"
)
_ABSENT: Final = object()
Keys = Sequence[str]


def patched(text: str, model: str, set: Mapping[str, Any], unset: Sequence[str] = ()) -> str:
    """The drop-in with keys of one model set and unset; "sampling.top_p" means a key in a table.

    A key that is not there is unset in silence; tables that come out empty vanish.
    """
    document = _document(text)
    for name in unset:
        document = _without(document, ("models", model, *name.split(".")))
    for name, value in set.items():
        document = _with(document, ("models", model, *name.split(".")), value)
    return _written(document)


def released(old_main: str, new_main: str, override: str) -> tuple[str, list[tuple[str, str]]]:
    """Last writer wins: the drop-in without the keys that a save of omlx.toml changed.

    Returns the text (unchanged when nothing is released) and (model, key) of each key taken out.
    """
    old, new, document = (_document(text) for text in (old_main, new_main, override))
    gone = [path for path in _model_keys(document) if _at(old, path) != _at(new, path)]
    if not gone:
        return override, []
    for path in gone:
        document = _without(document, path)
    return _written(document), [(path[1], ".".join(path[2:])) for path in gone]


def _document(text: str) -> dict[str, Any]:
    return tomllib.loads(text.removeprefix("\ufeff"))


def _written(document: Mapping[str, Any]) -> str:
    body = tomli_w.dumps(document)
    return f"{_HEADER}\n{body}" if body else _HEADER


def _with(table: Mapping[str, Any], path: Keys, value: Any) -> dict[str, Any]:
    name, *below = path
    if not below:
        return {**table, name: value}
    inner = table.get(name)
    return {**table, name: _with(inner if isinstance(inner, Mapping) else {}, below, value)}


def _without(table: Mapping[str, Any], path: Keys) -> dict[str, Any]:
    name, *below = path
    rest = {key: value for key, value in table.items() if key != name}
    inner = table.get(name)
    if below and name in table:
        if not isinstance(inner, Mapping):
            return dict(table)
        kept = _without(inner, below)
        return (
            {key: kept if key == name else value for key, value in table.items()} if kept else rest
        )
    return rest


def _model_keys(document: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    models = document.get("models")
    if isinstance(models, Mapping):
        yield from _leaf_paths(models, ("models",))


def _leaf_paths(table: Mapping[str, Any], base: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaf_paths(value, (*base, name))
        else:
            yield (*base, name)


def _at(document: Mapping[str, Any], path: Keys) -> Any:
    here: Any = document
    for name in path:
        if not isinstance(here, Mapping) or name not in here:
            return _ABSENT
        here = here[name]
    return here
