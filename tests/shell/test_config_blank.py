"""omlx.toml that turns empty: most often half of a save, sometimes an order."""

from __future__ import annotations

from pathlib import Path

import pytest

from omlxd.daemon.config import BLANK_BELIEVED_S, ConfigStore

GOOD = '[models.a]\nttl = "5m"\n'


class Store(ConfigStore):
    """A store whose clock stands still until the test moves it."""

    def __init__(self, home: Path, text: str) -> None:
        self.now = 100.0
        self.file = home / "omlx.toml"
        self.file.write_text(text)
        super().__init__(home, self.file, clock=lambda: self.now)
        self.start()

    @property
    def models(self) -> list[str]:
        assert self.spec is not None
        return list(self.spec.models)


@pytest.mark.parametrize("blank", ["", " \n\t\n", "\ufeff"])
def test_a_file_that_turns_empty_is_not_believed_at_once(tmp_path: Path, blank: str) -> None:
    """A writer that truncates first and writes later removes no model in between."""
    store = Store(tmp_path, GOOD)
    store.file.write_text(blank)
    outcome = store.reload()
    assert (outcome.accepted, outcome.look_again_s) == (False, BLANK_BELIEVED_S)
    assert (store.models, store.problems) == (["a"], ())
    store.now += 1.0
    assert store.reload().look_again_s == BLANK_BELIEVED_S - 1.0
    store.file.write_text(GOOD.replace("5m", "6m"))
    outcome = store.reload()
    assert (outcome.accepted, outcome.look_again_s) == (True, 0.0)
    assert [change.key for change in outcome.changes] == ['models."a".ttl']


def test_a_file_that_stays_empty_is_an_order(tmp_path: Path) -> None:
    """After a while the defaults are in force, as its owner wanted."""
    store = Store(tmp_path, GOOD)
    store.file.write_text("")
    assert not store.reload().accepted
    store.now += BLANK_BELIEVED_S
    outcome = store.reload()
    assert (outcome.accepted, outcome.look_again_s, store.models) == (True, 0.0, [])


def test_the_wait_begins_anew_after_content(tmp_path: Path) -> None:
    """Two saves in place within seconds are two short moments, not one long."""
    store = Store(tmp_path, GOOD)
    store.file.write_text("")
    store.reload()
    store.file.write_text(GOOD)
    store.now += 1.5
    store.reload()
    store.file.write_text("")
    store.now += 1.5
    assert store.reload().look_again_s == BLANK_BELIEVED_S
    assert store.models == ["a"]


def test_a_file_that_is_empty_at_the_start_counts(tmp_path: Path) -> None:
    """Nobody writes it then; also when another content was the last good one."""
    Store(tmp_path, GOOD)
    assert Store(tmp_path, "").models == []


def test_an_empty_file_after_a_vanished_one_waits_too(tmp_path: Path) -> None:
    """Deleted, created, written: the second step of such a save is no order either."""
    store = Store(tmp_path, GOOD)
    store.file.unlink()
    assert store.reload().rejected
    store.file.write_text("")
    assert store.reload().look_again_s == BLANK_BELIEVED_S
    store.now += BLANK_BELIEVED_S
    assert store.reload().accepted
    assert store.models == []


def test_a_patch_in_that_moment_is_made_over_what_is_in_force(tmp_path: Path) -> None:
    """Settings of omlxctl neither put the empty file in force nor fail for it."""
    store = Store(tmp_path, GOOD)
    store.file.write_text("")
    assert store.patch("a", {"pin": True}, []).accepted
    assert store.models == ["a"]
    store.file.write_text(GOOD)
    assert not store.reload().accepted
    assert store.pinned_by() == {"a": f"{tmp_path / 'omlx.d' / '90-omlxctl.toml'}:5"}
