"""omlxd.spec.dropin: what omlxctl sets, and what a later save takes back."""

from __future__ import annotations

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from omlxd.spec.dropin import patched, released
from omlxd.spec.parse import Source, read


def test_keys_are_set_and_unset() -> None:
    """One model's keys change, others and other models stay."""
    text = patched("", "org/a.b", {"pin": True, "sampling.top_k": 3})
    text = patched(text, "c", {"ttl": "5m"})
    text = patched(text, "org/a.b", {"ttl": "1h"}, ["pin"])
    assert tomllib.loads(text) == {
        "models": {"org/a.b": {"ttl": "1h", "sampling": {"top_k": 3}}, "c": {"ttl": "5m"}}
    }


def test_the_file_says_who_writes_it() -> None:
    """It opens with a comment, also when nothing is left in it."""
    assert patched("", "a", {"pin": True}).startswith("# Written by omlxd")
    assert patched("[models.a]\npin = true", "a", {}, ["pin"]).startswith("# Written by omlxd")


def test_empty_tables_vanish() -> None:
    """Unsetting the last key of a model leaves nothing of it."""
    text = patched("[models.a.sampling]\ntop_k = 1\n", "a", {}, ["sampling.top_k"])
    assert tomllib.loads(text) == {}


def test_unsetting_what_is_not_there_changes_nothing() -> None:
    """Missing keys, models and tables are no error."""
    text = patched("", "a", {"pin": True})
    assert patched(text, "a", {}, ["ttl", "sampling.top_k", "pin.x"]) == text
    assert patched(text, "b", {}, ["ttl"]) == text


def test_setting_the_same_again_gives_the_same_text() -> None:
    """A repeated command is no change."""
    text = patched("", "a", {"pin": True, "aliases": ["x"]})
    assert patched(text, "a", {"pin": True}) == text


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.isprintable))
def test_any_model_name_is_written_readably(name: str) -> None:
    """Names with dots, quotes or spaces are quoted."""
    assert tomllib.loads(patched("", name, {"pin": True})) == {"models": {name: {"pin": True}}}


def test_what_is_written_is_a_valid_drop_in() -> None:
    """The reader takes the file as it is."""
    override = Source("90-omlxctl.toml", patched("", "a", {"pin": True, "sampling.top_p": 0.5}))
    spec = read(Source("omlx.toml", "[models.a]\npin = false"), [override]).spec
    assert spec is not None
    assert spec.models["a"].pin


def test_a_saved_key_takes_the_override_back() -> None:
    """The key that a save changed leaves the drop-in; what it did not change stays."""
    override = patched("", "a", {"pin": True, "ttl": "1h"})
    override = patched(override, "b", {"pin": True})
    old = "[models.a]\nttl = '5m'\n[models.b]\nttl = '5m'"
    text, gone = released(old, "[models.a]\nttl = '7m'\n[models.b]\nttl = '9m'", override)
    assert gone == [("a", "ttl")]
    assert tomllib.loads(text) == {"models": {"a": {"pin": True}, "b": {"pin": True}}}


def test_adding_and_removing_a_key_are_changes() -> None:
    """A key that appears in omlx.toml or leaves it was written last there."""
    override = patched("", "a", {"pin": True, "sampling.top_k": 2})
    added, gone = released("", "[models.a]\npin = false\nsampling.top_k = 5", override)
    assert gone == [("a", "pin"), ("a", "sampling.top_k")]
    assert tomllib.loads(added) == {}
    assert released("[models.a]\npin = true", "", override)[1] == [("a", "pin")]


def test_other_saves_leave_the_override_alone() -> None:
    """A save that touches other keys returns the very text."""
    override = "# mine\n[models.a]\npin = true\n"
    old, new = "[models.a]\nttl = '5m'", "[models.a]\nttl = '6m'\n[server]\nmetrics = true"
    assert released(old, new, override) == (override, [])
    assert released(old, old, override) == (override, [])
    assert released(old, new, "") == ("", [])


KEYS = st.sampled_from(["pin", "ttl", "sampling.top_k", "sampling.top_p"])
SETTINGS = st.dictionaries(KEYS, st.integers(0, 2), max_size=4)


@given(SETTINGS, SETTINGS, SETTINGS)
def test_released_is_what_both_wrote(old: Any, new: Any, override: Any) -> None:
    """Exactly the keys that are set here and differ there are released; the rest is kept."""
    text = patched("", "a", override)
    after, gone = released(patched("", "a", old), patched("", "a", new), text)
    assert {key for _, key in gone} == {k for k in override if old.get(k) != new.get(k)}
    kept = {k: v for k, v in override.items() if old.get(k) == new.get(k)}
    assert tomllib.loads(after) == tomllib.loads(patched("", "a", kept))
