"""omlxd.spec.diff: one change per key that differs, with its reload class."""

from __future__ import annotations

from typing import Any

from omlxd.spec.diff import diff
from omlxd.spec.model import Spec
from omlxd.spec.report import Change


def changes(old: dict[str, Any], new: dict[str, Any]) -> list[Change]:
    return diff(Spec.model_validate(old), Spec.model_validate(new))


def models(**entries: dict[str, Any]) -> dict[str, Any]:
    return {"models": entries}


def test_equal_values_differently_written_are_no_change() -> None:
    """What means the same is the same."""
    old = {"logging": {"max_size": "1GB"}, "server": {"listen": "127.0.0.1:1"}}
    new = {"logging": {"max_size": "1024MB"}, "server": {"listen": ["127.0.0.1:1"]}}
    assert changes(old | models(a={"ttl": "5m"}), new | models(a={"ttl": 300})) == []


def test_each_key_has_its_reload_class() -> None:
    """Live, drain and rebind keys are told apart, with values as TOML writes them."""
    old = models(a={"ttl": "5m", "max_memory": "1GB"})
    new = {"server": {"listen": "127.0.0.1:1"}} | models(a={"ttl": "never"})
    assert changes(old, new) == [
        Change("server.listen", ["127.0.0.1:8000"], ["127.0.0.1:1"], "rebind"),
        Change('models."a".ttl', "5m", "never", "live", "a"),
        Change('models."a".max_memory', "1GB", None, "drain", "a"),
    ]


def test_keys_in_tables_change_one_by_one() -> None:
    """A table of free form gives a change per key, the first and the last one too."""
    one, two = {"x": 1}, {"x": 1, "y": {"z": 2}}
    kwargs = [models(a={"chat_template_kwargs": table}) for table in ({}, one, two)]
    name = 'models."a".chat_template_kwargs'
    assert changes(kwargs[0], kwargs[1]) == [Change(f"{name}.x", None, 1, "live", "a")]
    assert changes(kwargs[1], kwargs[2]) == [Change(f"{name}.y.z", None, 2, "live", "a")]
    assert changes(kwargs[1], kwargs[0]) == [Change(f"{name}.x", 1, None, "live", "a")]


def test_a_default_changes_the_models_that_inherit_it() -> None:
    """The change is reported where it was made and for each declared model that it reaches."""
    old = {"defaults": {"ttl": "5m"}} | models(a={}, b={"ttl": "1h"})
    new = {"defaults": {"ttl": "6m"}} | models(a={}, b={"ttl": "1h"})
    assert [change.key for change in changes(old, new)] == ["defaults.ttl", 'models."a".ttl']


def test_models_come_and_go_as_one_change() -> None:
    """An added or removed model is one change with what is set for it."""
    with_a = models(a={"pin": True})
    assert changes({}, with_a) == [Change('models."a"', None, {"pin": True}, "live", "a")]
    assert changes(with_a, {}) == [Change('models."a"', {"pin": True}, None, "live", "a")]


def test_an_entry_costs_what_its_keys_cost() -> None:
    """A model that is served without its entry drains only if a drain key differs."""
    old, closed = models(a={"max_memory": "1GB"}), {"discovery": {"serve_undeclared": False}}
    (gone,) = changes(old, {})
    assert gone.reload == "drain"
    assert changes(closed | models(a={}), closed)[0].reload == "drain"


def test_secrets_are_hidden() -> None:
    """A changed key is told without showing it."""
    old, new = {"server": {"api_keys": ["k1"]}}, {"server": {"api_keys": ["k2", "env:K"]}}
    assert changes(old, new) == [Change("server.api_keys", ["***"], ["***", "env:K"], "live")]
