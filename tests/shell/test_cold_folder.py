"""The folder of the cold tier on a real disk."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from omlxd.daemon.cold_folder import LOCK, NO_INDEX, SIGNATURE, TAG, HeldFolder, NotUsable, take

HOLDER = """
import sys
from pathlib import Path
from omlxd.daemon.cold_folder import take
folder = take(Path(sys.argv[1]), device=None)
print("held", flush=True)
sys.stdin.read()
"""

# As a user who may not write: root may write anywhere.
STRANGER = """
import os, sys
from pathlib import Path
from omlxd.daemon.cold_folder import HeldFolder, NotUsable, take
path = Path(sys.argv[1])
if os.geteuid() == 0:
    os.chown(path.parent, 65534, 65534)
    os.chown(path, 65534, 65534)
    os.setuid(65534)
folder = take(path, device=None)
path.chmod(0o500)
for attempt in (folder.check, lambda: take(path / "deep", device=None)):
    try:
        attempt()
        print("usable")
    except NotUsable as error:
        print(error.reason)
path.chmod(0o700)
folder.check()
print("usable")
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def held(path: Path, device: int | None = None) -> HeldFolder:
    return take(path, device=device)


def refusal(path: Path, device: int | None = None) -> NotUsable:
    with pytest.raises(NotUsable) as caught:
        take(path, device=device)
    return caught.value


def test_a_new_folder_is_private_and_tagged(path: Path) -> None:
    """It is made 0700, carries the standard tag, and keeps backups and Spotlight out."""
    folder = held(path)
    assert path.stat().st_mode & 0o777 == 0o700
    assert (path / TAG).read_bytes().startswith(SIGNATURE)
    assert sorted(os.listdir(path)) == sorted([TAG, NO_INDEX, LOCK])
    folder.check()
    assert sorted(os.listdir(path)) == sorted([TAG, NO_INDEX, LOCK])
    assert folder.free_bytes() > 0


def test_it_is_known_again(path: Path) -> None:
    """A folder of an earlier run is taken with what is in it."""
    held(path).release()
    (path / "ab").mkdir()
    held(path).release()
    assert (path / "ab").is_dir()


@pytest.mark.parametrize("name", [".DS_Store", "lost+found"])
def test_an_empty_folder_is_taken(path: Path, name: str) -> None:
    """What systems put into every folder does not count."""
    path.mkdir()
    (path / name).touch()
    held(path).check()
    assert (path / TAG).exists()


@pytest.mark.parametrize("tag", [None, b"", b"Signature: something else", SIGNATURE + b"\n# pip\n"])
def test_what_is_not_ours_is_left_alone(path: Path, tag: bytes | None) -> None:
    """A folder with files but without our own tag is refused and not touched."""
    path.mkdir()
    (path / "thesis.txt").write_text("years of work")
    if tag is not None:
        (path / TAG).write_bytes(tag)
    before = sorted(os.listdir(path))
    error = refusal(path)
    assert error.reason == "NotOurs"
    assert "cache.cold_dir" in error.message
    assert sorted(os.listdir(path)) == before


@pytest.fixture
def holder(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the folder."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process


def test_two_daemons_do_not_share_it(path: Path, holder: subprocess.Popen[bytes]) -> None:
    """The second one is told who has it, and may have it afterwards."""
    error = refusal(path)
    assert (error.reason, str(holder.pid) in error.message) == ("InUse", True)
    holder.kill()
    holder.wait()
    held(path).check()


def test_no_parents_are_made(path: Path) -> None:
    """A folder on a disk that is not mounted must not begin on the one below it."""
    assert refusal(path / "deep").reason == "Missing"
    assert not path.exists()


def test_a_new_folder_is_made_on_the_disk_it_was_on(path: Path) -> None:
    """Where its disk was unmounted, neither a missing nor an empty folder is taken."""
    here = path.parent.stat().st_dev
    assert refusal(path, here + 1).reason == "Missing"
    path.mkdir()
    assert refusal(path, here + 1).reason == "Missing"
    held(path, here).release()
    held(path, here + 1).release()  # ours by its tag: mounted again under another number


def test_a_file_in_its_place_is_refused(path: Path) -> None:
    """What is not a folder is left alone."""
    path.write_text("x")
    assert refusal(path).reason == "NotAFolder"
    assert refusal(path / "below").reason == "NotAFolder"
    assert path.read_text() == "x"


def test_a_folder_that_cannot_be_written_is_of_no_use() -> None:
    """Neither held nor made, and usable again when it can be written."""
    with tempfile.TemporaryDirectory(prefix="omlxd-") as folder:
        path = Path(folder) / "cache"
        path.mkdir(mode=0o700)
        command = [sys.executable, "-c", STRANGER, str(path)]
        seen = subprocess.run(command, capture_output=True, text=True, check=True)
    assert seen.stdout.split() == ["NotPermitted", "NotPermitted", "usable"]


def test_a_lost_folder_is_noticed(path: Path) -> None:
    """Gone, replaced by another, or without its tag: it is no longer used."""
    folder = held(path)
    path.rename(path.with_name("aside"))
    with pytest.raises(NotUsable, match="gone") as caught:
        folder.check()
    assert caught.value.reason == "Missing"
    other = held(path)
    with pytest.raises(NotUsable, match="not the folder that it was"):
        folder.check()
    (path / TAG).unlink()
    with pytest.raises(NotUsable) as caught:
        other.check()
    assert caught.value.reason == "NotOurs"
