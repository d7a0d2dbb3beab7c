"""Disks that are missing, read-only or full: the engine is told, and serves on."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from omlxd.worker.cold_folder import BelowMinFree, write_reason
from omlxd.worker.cold_store import RETRY_S
from tests.support.cold_rig import ColdRig, key, piece, small_disk

pytestmark = pytest.mark.mlx


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", "1m") as disk:
        yield disk


def test_a_missing_disk_is_left_alone_and_tried_again_later(tmp_path: Path) -> None:
    """Nothing is made where a disk is to be mounted; when it is back, writing goes on."""
    home = tmp_path / "disk"
    with ColdRig(home / "namespace") as cold:
        assert list(cold.store.list()) == []
        assert cold.store.degraded == ""
        done = cold.write(1)
        assert (done.reason, home.exists()) == ("missing", False)
        assert cold.store.degraded.startswith("missing: ")
        assert str(home) in cold.store.degraded
        assert cold.read(1).reason == "absent"
        home.mkdir()
        assert cold.write(2).reason == "missing"  # too early to ask the disk again
        assert list(home.iterdir()) == []
        cold.now += RETRY_S
        assert cold.write(3).ok
        assert cold.store.degraded == ""
        assert [entry for entry, _ in cold.store.list()] == [key(3)]


def test_a_disk_that_goes_while_in_use_is_noticed(tmp_path: Path) -> None:
    """Reads miss, writes say why."""
    home = tmp_path / "disk"
    home.mkdir()
    with ColdRig(home / "namespace") as cold:
        assert cold.write(1).ok
        shutil.rmtree(home)
        assert cold.read(1).reason == "absent"
        assert cold.write(1).reason == "missing"


def test_a_file_in_the_place_of_the_folder_is_not_replaced(tmp_path: Path) -> None:
    """It is not ours to remove."""
    place = tmp_path / "namespace"
    place.write_text("mine")
    with ColdRig(place) as cold:
        assert cold.write(1).reason == "missing"
        assert list(cold.store.list()) == []
        assert cold.store.degraded
    assert place.read_text() == "mine"


def test_a_read_only_disk_is_read_and_not_written(tmp_path: Path) -> None:
    """What was kept goes on serving, bad files too stay where they are."""
    if os.geteuid() != 0:
        _check_read_only(tmp_path, before=lambda folder: _chmod(folder, 0o500))
        _chmod(tmp_path / "namespace", 0o700)
        return
    with small_disk(tmp_path / "disk", "1m") as disk:
        remount = ["mount", "-o", "remount,ro", str(disk)]
        _check_read_only(disk, before=lambda _folder: subprocess.run(remount, check=True))


def _chmod(folder: Path, mode: int) -> None:
    for path in (folder, *(each for each in folder.rglob("*") if each.is_dir())):
        path.chmod(mode)


def _check_read_only(home: Path, before: object) -> None:
    with ColdRig(home / "namespace") as cold:
        assert cold.write(1).ok
        assert cold.write(2).ok
        cold.path(2).write_bytes(b"garbled")
        assert callable(before)
        before(cold.folder)
        assert cold.write(3).reason == "read only"
        assert cold.read(1).ok
        assert cold.read(2).reason == "truncated"
        assert cold.path(2).exists()
        assert [entry for entry, _ in cold.store.list()] != []


def test_a_full_disk_loses_the_write_and_nothing_else(disk: Path) -> None:
    """No half file is left; what is there is read; with room again, writing goes on."""
    with ColdRig(disk / "namespace") as cold:
        assert cold.write(1, piece(1, kib=400)).ok
        done = cold.write(2, piece(2, kib=700))
        assert done.reason == "disk full"
        assert [entry for entry, _ in cold.store.list()] == [key(1)]
        assert [p for p in cold.folder.rglob("*") if p.is_file()] == [cold.path(1)]
        assert cold.read(1).ok
        cold.path(1).unlink()
        cold.now += RETRY_S
        assert cold.write(2, piece(2, kib=700)).ok
        assert cold.read(2).ok


def test_the_room_to_leave_free_is_kept_and_can_be_changed(disk: Path) -> None:
    """A write that would go below it is not begun; a new limit is tried at once."""
    with ColdRig(disk / "namespace", min_free_bytes=512 << 10) as cold:
        assert cold.write(1, piece(1, kib=100)).ok
        done = cold.write(2, piece(2, kib=500))
        assert done.reason == "below min free"
        assert str(512 << 10) in done.detail
        assert not cold.path(2).exists()
        cold.store.set_min_free(0)
        assert cold.write(2, piece(2, kib=500)).ok
        assert cold.store.degraded == ""


def test_a_probe_finds_a_disk_that_is_back(tmp_path: Path) -> None:
    """Nothing is asked while all is well or while it is too early; no file stays."""
    home = tmp_path / "disk"
    with ColdRig(home / "namespace") as cold:
        cold.store.probe()
        cold.write(1)
        cold.store.probe()
        cold.now += RETRY_S
        assert cold.probe().reason == "missing"
        home.mkdir()
        cold.now += RETRY_S
        assert cold.probe().ok
        assert cold.count("probe") == 2
        assert cold.store.degraded == ""
        assert [path for path in home.rglob("*") if path.is_file()] == []


def test_a_probe_of_a_full_disk_fails(disk: Path) -> None:
    """It does what a write does, not only look."""
    with ColdRig(disk / "namespace") as cold:
        assert cold.write(1, piece(kib=2000)).reason == "disk full"
        with (disk / "rest").open("wb") as rest, pytest.raises(OSError, match="No space"):
            rest.write(bytes(2 << 20))
        cold.now += RETRY_S
        assert cold.probe().reason == "disk full"
        (disk / "rest").unlink()
        cold.now += RETRY_S
        assert cold.probe().ok


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOENT, "missing"),
        (errno.ENOTDIR, "missing"),
        (errno.EROFS, "read only"),
        (errno.EACCES, "read only"),
        (errno.ENOSPC, "disk full"),
        (errno.EDQUOT, "disk full"),
        (errno.EIO, "io"),
        (None, "io"),
    ],
)
def test_what_the_system_says_becomes_a_reason(number: int | None, reason: str) -> None:
    """Few reasons, each with its own remedy."""
    assert write_reason(OSError(number, "words")) == reason
    assert write_reason(BelowMinFree("words")) == "below min free"
