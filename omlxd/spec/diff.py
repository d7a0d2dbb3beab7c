"""What differs between two desired states, key by key, with what it takes to put it in force."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from omlxd.spec.fields import Reload
from omlxd.spec.keys import dotted, redacted
from omlxd.spec.leaves import Leaf, leaves
from omlxd.spec.model import ModelSpec, Spec, Table
from omlxd.spec.positions import Path
from omlxd.spec.report import Change

_STRENGTH: Final[Mapping[Reload, int]] = {"live": 0, "drain": 1, "rebind": 2}


def diff(old: Spec, new: Spec) -> list[Change]:
    """Changes in the order of the schema, models last; equal values differently written are none.

    A changed default is reported under `defaults` and under every declared model that inherits it.
    Literal secrets are hidden. An added or removed model is one change.
    """
    changes: list[Change] = []
    for name in Spec.model_fields:
        if name != "models":
            changes += _changes(getattr(old, name), getattr(new, name), (name,))
    for model in {**old.models, **new.models}:
        changes += _model_changes(old, new, model)
    return changes


def _model_changes(old: Spec, new: Spec, model: str) -> Iterator[Change]:
    path: Path = ("models", model)
    before, after = old.models.get(model), new.models.get(model)
    if before is not None and after is not None:
        yield from _changes(before, after, path)
    else:
        reload = _reload_of_presence(old, new, model)
        yield Change(dotted(path), _as_set(before), _as_set(after), reload, model)


def _reload_of_presence(old: Spec, new: Spec, model: str) -> Reload:
    """An entry that comes or goes costs what its keys cost, where the model is served without it
    too; a model that is served no longer drains."""
    if model not in new.models and not new.discovery.serve_undeclared:
        return "drain"
    steps = _changes(old.effective(model), new.effective(model), ("models", model))
    return max((step.reload for step in steps), key=_STRENGTH.__getitem__, default="live")


def _as_set(model: ModelSpec | None) -> Any:
    return None if model is None else model.model_dump(mode="json", exclude_unset=True)


def _changes(old: Table, new: Table, base: Path) -> list[Change]:
    if old == new:
        return []
    before = _filled(old, base)
    after = _filled(new, base)
    return [
        _change(path, before.get(path), after.get(path))
        for path in {**before, **after}
        if _value(before.get(path)) != _value(after.get(path))
    ]


def _filled(table: Table, base: Path) -> dict[Path, Leaf]:
    """Without empty tables, so that a first or last key in one is one change, not two."""
    return {leaf.path: leaf for leaf in leaves(table, base) if leaf.value != {}}


def _value(leaf: Leaf | None) -> Any:
    return None if leaf is None else leaf.value


def _change(path: Path, old: Leaf | None, new: Leaf | None) -> Change:
    key, model = dotted(path), str(path[1]) if path[0] == "models" else ""
    leaf = new or old
    assert leaf is not None
    return Change(key, redacted(key, _value(old)), redacted(key, _value(new)), leaf.reload, model)
