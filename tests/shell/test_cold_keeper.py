"""The folder of the cold tier kept within its bounds, on a real disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omlxd.daemon.cold_folder import take
from omlxd.daemon.cold_keeper import CENSUS_S, ColdKeeper, ColdSettings, ColdView, Look
from omlxd.daemon.janitor import Evicted
from tests.support.cold import KIB, disk_bytes, namespace, put

BUDGET = 400 * KIB
ALL = 1 << 60  # more than any disk has free


class Keeping:
    """A keeper with its folder; `look` goes by the settings that stand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.keeper = ColdKeeper()
        self.settings = {"path": path, "budget_bytes": BUDGET, "min_free_bytes": 0}

    def look(self, *, now: float = 0.0, **facts: Any) -> ColdView:
        settings = ColdSettings(**self.settings)  # type: ignore[arg-type]
        return self.keeper.look(Look(now=now, settings=settings, **facts))


@pytest.fixture
def keeping(tmp_path: Path) -> Iterator[Keeping]:
    keeping = Keeping(tmp_path / "cache")
    yield keeping
    keeping.keeper.release()


def test_the_first_look_counts_what_is_there(keeping: Keeping) -> None:
    """A restart knows at once what earlier runs left."""
    take(keeping.path, device=None).release()
    for number in range(10):
        put(keeping.path, number)
    view = keeping.look()
    assert (view.dir, view.reason) == (str(keeping.path), "Ready")
    assert view.held_bytes == disk_bytes(keeping.path) == 40 * KIB
    assert view.tidied is not None
    assert view.tidied.namespaces == {namespace(1)}


def test_it_counts_again_after_a_while(keeping: Keeping) -> None:
    """In between it goes by what the workers say; then by the disk."""
    keeping.look()
    put(keeping.path, 1)
    assert keeping.look(now=CENSUS_S - 1, written=4 * KIB).tidied is None
    assert keeping.look(now=CENSUS_S, written=4 * KIB).held_bytes == 4 * KIB


def test_what_workers_write_past_the_budget_goes_at_once(keeping: Keeping) -> None:
    """The oldest go until 95% of the budget are left."""
    keeping.look()
    for number in range(101):
        put(keeping.path, number, age_s=number)
    view = keeping.look(now=1.0, written=404 * KIB)
    assert view.tidied is not None
    assert (view.tidied.evicted, view.tidied.reason) == (Evicted(6, 24 * KIB), "budget")
    assert view.held_bytes == disk_bytes(keeping.path) == 380 * KIB
    assert keeping.look(now=2.0, written=404 * KIB).tidied is None


def test_a_smaller_budget_is_kept_at_once(keeping: Keeping) -> None:
    """The next look under other settings evicts."""
    keeping.look()
    for number in range(10):
        put(keeping.path, number)
    keeping.look(now=1.0, thorough=True)
    keeping.settings["budget_bytes"] = 20 * KIB
    assert keeping.look(now=2.0).held_bytes == 16 * KIB


def test_the_disk_is_never_filled_up(keeping: Keeping) -> None:
    """Below cold_min_free everything goes; when that is not enough, status says so."""
    keeping.look()
    put(keeping.path, 1)
    keeping.look(now=1.0, thorough=True)
    keeping.settings["min_free_bytes"] = ALL
    view = keeping.look(now=2.0)
    assert view.tidied is not None
    assert (view.tidied.evicted.blocks, view.tidied.reason) == (1, "min_free")
    assert (view.dir, view.reason) == (str(keeping.path), "DiskFull")
    assert "cache.cold_min_free" in view.message
    assert keeping.look(now=3.0).tidied is None  # there is nothing left to count
    keeping.settings["min_free_bytes"] = 0
    assert keeping.look(now=4.0).reason == "Ready"


def test_off_lets_go_and_removes_nothing(keeping: Keeping) -> None:
    """Another daemon may have the folder then; turned on again, it is counted anew."""
    keeping.look()
    put(keeping.path, 1)
    keeping.settings["budget_bytes"] = 0
    view = keeping.look(now=1.0)
    assert (view.dir, view.reason, view.held_bytes) == ("", "TurnedOff", 0)
    take(keeping.path, device=None).release()
    keeping.settings["budget_bytes"] = BUDGET
    assert keeping.look(now=2.0).held_bytes == 4 * KIB


def test_another_folder_is_another_tier(keeping: Keeping) -> None:
    """The old one is let go with what it holds, the new one is made."""
    keeping.look()
    put(keeping.path, 1)
    keeping.settings["path"] = other = keeping.path.with_name("other")
    view = keeping.look(now=1.0)
    assert (view.dir, view.held_bytes) == (str(other), 0)
    take(keeping.path, device=None).release()
    assert disk_bytes(keeping.path) == 4 * KIB


def test_a_lost_folder_comes_back_by_itself(keeping: Keeping) -> None:
    """Gone, it is out of use; there again, it is in use with what it holds."""
    keeping.look()
    put(keeping.path, 1)
    keeping.path.rename(aside := keeping.path.with_name("aside"))
    keeping.path.write_text("in the way")
    view = keeping.look(now=1.0)
    assert (view.dir, view.reason) == ("", "NotAFolder")
    keeping.path.unlink()
    aside.rename(keeping.path)
    assert keeping.look(now=2.0).held_bytes == 4 * KIB


def test_a_removed_folder_is_made_anew(keeping: Keeping) -> None:
    """Deleting the cache by hand is no harm."""
    keeping.look()
    shutil.rmtree(keeping.path)
    assert keeping.look(now=1.0).reason == "Missing"
    assert keeping.look(now=2.0).reason == "Ready"


def test_between_probes_the_folder_itself_is_not_looked_at(keeping: Keeping) -> None:
    """What is written every second costs no more than a look at free space."""
    keeping.look()
    (keeping.path / "CACHEDIR.TAG").unlink()
    assert keeping.look(now=1.0, probe=False).reason == "Ready"
    assert keeping.look(now=2.0).reason == "NotOurs"


def test_a_thorough_look_takes_leftovers_of_the_unused(keeping: Keeping) -> None:
    """Temporary files go at once where no worker writes; empty namespaces too."""
    keeping.look()
    for number in (1, 2):
        path = put(keeping.path, number, of=namespace(number))
        os.utime(path)
        path.rename(path.with_name(f"{path.stem}.0123abcd.tmp.safetensors"))
    in_use = frozenset({namespace(2)})
    view = keeping.look(now=1.0, in_use=in_use, thorough=True)
    assert view.tidied is not None
    assert (view.tidied.stale, view.tidied.emptied) == (1, 1)
    assert (keeping.path / namespace(2)).exists()
