"""What `omlxctl set` and `unset` are told when they are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from omlxd.daemon.config import ConfigStore
from omlxd.errors import SpecInvalid
from omlxd.spec import dropin

GOOD = '[models.a]\nttl = "5m"\n'


@pytest.fixture
def store(tmp_path: Path) -> ConfigStore:
    (tmp_path / "omlx.toml").write_text(GOOD)
    store = ConfigStore(tmp_path, tmp_path / "omlx.toml")
    store.start()
    return store


def test_a_refused_key_has_no_line(store: ConfigStore) -> None:
    """Nothing of it was written, so the problem names the key and no place in a file."""
    with pytest.raises(SpecInvalid) as caught:
        store.patch("a", {"ttl": "soon", "pin": 3}, [])
    places = [(p.file, p.line, p.column, p.key) for p in caught.value.problems]
    assert sorted(places) == [("", 0, 0, 'models."a".pin'), ("", 0, 0, 'models."a".ttl')]


def test_problems_of_other_files_keep_their_place(store: ConfigStore) -> None:
    """What is wrong on disk is to be found there."""
    store.path.write_text('[models.a]\nttl = "soon"\n')
    with pytest.raises(SpecInvalid) as caught:
        store.patch("a", {"pin": True}, [])
    assert [(p.file, p.line) for p in caught.value.problems] == [(str(store.path), 2)]
    store.path.write_text(GOOD)
    broken = store.home / "omlx.d" / dropin.NAME
    broken.parent.mkdir()
    broken.write_text("\nx = [")
    with pytest.raises(SpecInvalid) as caught:
        store.patch("a", {"pin": True}, [])
    assert [(p.file, p.line) for p in caught.value.problems] == [(str(broken), 2)]


@pytest.mark.parametrize("key", ["tll", "sampling.top_q", "pin.x", "", "models"])
def test_an_unknown_key_cannot_be_unset(store: ConfigStore, key: str) -> None:
    """A typing error is told, not taken for a key that was not set."""
    with pytest.raises(SpecInvalid, match="is no key of a model") as caught:
        store.patch("a", {"pin": True}, ["ttl", key])
    (problem,) = caught.value.problems
    assert (problem.file, problem.line) == ("", 0)
    assert (problem.hint == "did you mean ttl?") == (key == "tll")
    assert store.generation == 1


@pytest.mark.parametrize(
    "key", ["ttl", "sampling", "sampling.top_p", "chat_template_kwargs.enable_thinking"]
)
def test_a_known_key_that_is_not_set_is_unset_in_silence(store: ConfigStore, key: str) -> None:
    """Whole tables, their keys and keys of the template's own tables too."""
    assert list(store.patch("a", {}, [key]).changes) == []
