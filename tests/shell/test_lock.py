from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from omlxd.daemon.lock import LOCK_FILE, AlreadyRunning, acquire

HOLDER = """
import sys
from pathlib import Path
from omlxd.daemon.lock import acquire
lock = acquire(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "home"


@pytest.fixture
def holder(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the home."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process


def test_a_held_home_names_its_holder(home: Path, holder: subprocess.Popen[bytes]) -> None:
    """The second daemon learns who is there, and the file still names the first."""
    with pytest.raises(AlreadyRunning, match=f"process {holder.pid} already runs") as caught:
        acquire(home)
    assert caught.value.pid == holder.pid
    assert (home / LOCK_FILE).read_text() == f"{holder.pid}\n"


def test_a_killed_holder_leaves_the_home_free(home: Path, holder: subprocess.Popen[bytes]) -> None:
    """The file of a crashed daemon, number and all, does not keep the next one out."""
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (home / LOCK_FILE).read_text() == f"{holder.pid}\n"
    lock = acquire(home)
    assert lock.path.read_text() == f"{os.getpid()}\n"
    lock.release()


def test_release_lets_the_next_one_in(home: Path) -> None:
    """A released home can be taken again, and its file names nobody in between."""
    acquire(home).release()
    assert (home / LOCK_FILE).read_text() == ""
    acquire(home).release()


def test_a_child_does_not_keep_the_lock(home: Path) -> None:
    """A worker that outlives the daemon for a moment does not hold the home."""
    lock = acquire(home)
    assert not os.get_inheritable(lock.fd)
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        close_fds=False,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        lock.release()
        acquire(home).release()


def test_an_unwritten_number_is_none(home: Path, holder: subprocess.Popen[bytes]) -> None:
    """Between the lock and the number there is a moment; it is not read as process 0."""
    (home / LOCK_FILE).write_text("")
    with pytest.raises(AlreadyRunning, match="another process already runs") as caught:
        acquire(home)
    assert caught.value.pid is None


def test_only_the_user_may_look(home: Path) -> None:
    """Folders are 0700 and the file 0600."""
    lock = acquire(home)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (home, lock.path.parent, lock.path)]
    lock.release()
    assert modes == [0o700, 0o700, 0o600]


def test_a_link_in_place_of_the_file_is_refused(home: Path, tmp_path: Path) -> None:
    """The lock is never taken, and nothing is written, through a symbolic link."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (home / "run").mkdir(parents=True)
    (home / LOCK_FILE).symlink_to(victim)
    with pytest.raises(OSError, match="symbolic"):
        acquire(home)
    assert victim.read_text() == "precious"
