"""The cold store on real disks: what is kept, what is answered, what is never touched."""

from __future__ import annotations

import os
import random
import stat
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx
import pytest

from omlxd.kv.types import EntryKey
from omlxd.worker.cold_folder import STALE_TEMPORARY_S, ColdFolder
from omlxd.worker.cold_store import TOUCH_EVERY_S, Lost
from omlxd.worker.piece import Piece
from tests.support.cold_rig import PIECE_BYTES, ColdRig, key, piece

pytestmark = pytest.mark.mlx


@pytest.fixture
def cold(tmp_path: Path) -> Iterator[ColdRig]:
    with ColdRig(tmp_path / "namespace") as rig:
        yield rig


class Gate:
    """Holds every write until it is opened, and tells when one has come."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self._open = threading.Event(), threading.Event()
        write = ColdFolder.write

        def gated(folder: ColdFolder, key: EntryKey, piece: Piece, *, min_free_bytes: int) -> int:
            self.reached.set()
            self._open.wait()
            return write(folder, key, piece, min_free_bytes=min_free_bytes)

        monkeypatch.setattr(ColdFolder, "write", gated)

    def open(self) -> None:
        self._open.set()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(monkeypatch)
    yield gate
    gate.open()


def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    """Another store on the same folder lists it and reads it, bit by bit."""
    with ColdRig(tmp_path / "namespace") as before:
        sizes = {key(number): before.write(number).nbytes for number in range(20)}
    with ColdRig(tmp_path / "namespace") as after:
        assert dict(after.store.list()) == sizes
        done = after.read(7)
        assert (done.ok, done.key, done.nbytes) == (True, key(7), PIECE_BYTES)
        assert done.piece is not None
        assert mx.array_equal(done.piece.arrays[0], piece(7).arrays[0])
        assert done.seconds > 0


def test_files_and_folders_are_the_owners_alone(cold: ColdRig) -> None:
    """Blocks hold what people wrote."""
    cold.write(1)
    assert stat.S_IMODE(cold.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(cold.path(1).parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(cold.path(1).stat().st_mode) == 0o600


def test_answers_come_from_the_stores_own_threads(cold: ColdRig) -> None:
    """The caller never waits for the disk."""
    cold.write(1)
    cold.read(1)
    assert threading.current_thread().name not in cold.answered_by


def test_an_absent_entry_is_a_miss(cold: ColdRig) -> None:
    """Evicted files are no error."""
    assert cold.read(5).reason == "absent"


def test_a_bad_file_is_a_miss_and_is_removed(cold: ColdRig) -> None:
    """A flipped byte, half a file, another entry's file: each is told apart and gone."""
    for number in (1, 2, 3, 4):
        cold.write(number)
    whole = cold.path(1).read_bytes()
    cold.path(1).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    cold.path(2).write_bytes(whole[: len(whole) // 2])
    cold.path(3).write_bytes(cold.path(4).read_bytes())
    assert [cold.read(n).reason for n in (1, 2, 3)] == ["checksum", "truncated", "wrong key"]
    assert [cold.read(n).reason for n in (1, 2, 3)] == ["absent"] * 3
    assert dict(cold.store.list()).keys() == {key(4)}


def test_what_is_not_ours_is_neither_listed_nor_touched(cold: ColdRig) -> None:
    """Other names, other places, links and folders stay as they are."""
    cold.write(1)
    shard, name = cold.path(1).parent, "ab" * 32
    kept = [
        cold.folder / f"{name}.safetensors",
        cold.folder / "notes" / f"{name}.safetensors",
        shard / f"{name}.safetensors",  # another shard's
        shard / "model.safetensors",
        shard / f"{name}.tmp.safetensors",
        shard / f"{shard.name}{name[2:]}.safetensors.bak",
        shard / f"{shard.name}{name[2:].upper()}.safetensors",
    ]
    for path in kept:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"kept")
        os.utime(path, (0, 0))
    link = shard / f"{shard.name}{'00' * 31}.safetensors"
    link.symlink_to(kept[0])
    folder = shard / f"{shard.name}{'11' * 31}.safetensors"
    folder.mkdir()
    assert dict(cold.store.list()).keys() == {key(1)}
    assert [path.read_bytes() for path in kept] == [b"kept"] * len(kept)
    assert link.is_symlink()
    assert folder.is_dir()


def test_a_temporary_file_of_a_killed_process_goes_when_it_is_old(cold: ColdRig) -> None:
    """A young one may be another worker's write in progress."""
    cold.write(1)
    old, young = (
        cold.path(1).with_name(f"{key(1).hex()}.{n}234abcd.tmp.safetensors") for n in "01"
    )
    for path in (old, young):
        path.write_bytes(b"half")
    past = young.stat().st_mtime - STALE_TEMPORARY_S - 60
    os.utime(old, (past, past))
    assert [entry for entry, _ in cold.store.list()] == [key(1)]
    assert not old.exists()
    assert young.exists()


def test_folders_that_go_when_they_are_empty_do_no_harm(
    cold: ColdRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever evicts the last entry of a folder removes it, also right before a write."""
    ready, removed = ColdFolder._ready, []

    def remove_once(folder: ColdFolder, key: EntryKey) -> Path:
        path = ready(folder, key)
        if not removed:
            path.parent.rmdir()
            removed.append(path.parent)
        return path

    monkeypatch.setattr(ColdFolder, "_ready", remove_once)
    assert cold.write(1).ok
    assert removed == [cold.path(1).parent]
    assert cold.read(1).ok
    cold.path(1).unlink()
    listing = cold.store.list()
    cold.path(1).parent.rmdir()
    assert list(listing) == []
    assert cold.store.degraded == ""


def test_reads_go_before_writes_that_wait(cold: ColdRig, gate: Gate) -> None:
    """A request waits for its read; nobody waits for a write."""
    for number in range(5):
        cold.store.write(key(number), piece())
    gate.reached.wait()
    assert cold.read(99).reason == "absent"
    assert cold.count("write") == 0
    gate.open()
    cold.wait_for(lambda: cold.count("write") == 5)


def test_the_queue_is_bounded_in_bytes(tmp_path: Path, gate: Gate) -> None:
    """What does not fit is answered and never written; a single large piece always fits."""
    with ColdRig(tmp_path / "namespace", queue_bytes=2 * PIECE_BYTES) as cold:
        cold.store.write(key(0), piece(kib=64))
        cold.store.write(key(1), piece())
        assert cold.store.queued_bytes == 16 * PIECE_BYTES
        gate.open()
        cold.wait_for(lambda: cold.count("write") == 2)
        assert [done.reason for done in cold.answers] == ["", "queue full"]
        assert cold.store.queued_bytes == 0
        assert cold.write(1).ok


def test_the_last_key_touched_is_the_newest_file(cold: ColdRig) -> None:
    """Given tail to head, the tail is the first to be evicted by age, whatever was written last."""
    for number in (1, 2, 3):
        cold.store.write(key(number), piece())
    cold.store.touch([key(3), key(2), key(1)])
    cold.write(4)
    times = [cold.path(number).stat().st_mtime_ns for number in (3, 2, 1)]
    assert times == sorted(set(times))


def test_a_key_is_touched_once_a_minute(cold: ColdRig) -> None:
    """Every turn of a conversation hits the same files."""
    cold.write(1)

    def touched() -> bool:
        os.utime(cold.path(1), (0, 0))
        cold.store.touch([key(1)])
        cold.write(2)  # touches and writes are done in order
        return cold.path(1).stat().st_mtime > 0

    assert touched()
    cold.now += TOUCH_EVERY_S - 1
    assert not touched()
    cold.now += 1
    assert touched()


def test_a_touch_of_a_file_that_is_gone_says_so(cold: ColdRig) -> None:
    """So the index learns what the janitor took."""
    cold.write(1)
    cold.store.touch([key(1), key(2)])
    cold.wait_for(lambda: cold.count("touch"))
    (done,) = [done for done in cold.answers if done.op == "touch"]
    assert (done.key, done.reason) == (key(2), "absent")


def test_a_file_is_removed_after_its_write(cold: ColdRig) -> None:
    """In the order asked for; one that is not there is no failure."""
    cold.store.write(key(1), piece())
    cold.store.remove([key(1), key(2)])
    cold.write(3)
    assert [cold.path(number).exists() for number in (1, 2, 3)] == [False, False, True]
    assert cold.count("remove") == 0


def test_close_writes_what_is_queued(tmp_path: Path) -> None:
    """Unloading a model loses nothing that the disk can take in time."""
    rig = ColdRig(tmp_path / "namespace")
    for number in range(50):
        rig.store.write(key(number), piece())
    assert rig.close() == Lost()
    assert [done.ok for done in rig.answers] == [True] * 50
    assert len(list(rig.store.list())) == 50


def test_close_counts_what_it_had_no_time_for(tmp_path: Path, gate: Gate) -> None:
    """A slow disk does not hold up the end; every write and read has its answer."""
    rig = ColdRig(tmp_path / "namespace")
    for number in range(3):
        rig.store.write(key(number), piece())
    gate.reached.wait()
    lost = rig.close(0.05)
    assert lost == Lost(entries=3, nbytes=3 * PIECE_BYTES, hung_threads=1)
    gate.open()
    rig.wait_for(lambda: rig.count("write") == 3)
    assert [done.reason for done in rig.answers] == ["closed", "closed", ""]


def test_every_question_has_one_answer(tmp_path: Path) -> None:
    """In any order, with a close in the middle of it."""
    source = random.Random(8)
    rig = ColdRig(tmp_path / "namespace", queue_bytes=4 * PIECE_BYTES)
    asked: Counter[tuple[str, EntryKey]] = Counter()
    for _ in range(300):
        number = source.randrange(20)
        if source.random() < 0.5:
            rig.store.write(key(number), piece())
            asked["write", key(number)] += 1
        else:
            rig.store.read(key(number))
            asked["read", key(number)] += 1
    rig.close()
    assert Counter((done.op, done.key) for done in rig.answers) == asked
    assert {done.reason for done in rig.answers} <= {"", "absent", "queue full", "closed"}


def test_an_error_nobody_thought_of_is_an_answer_too(
    cold: ColdRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that died would leave somebody waiting for ever."""

    def fail(*_args: object, **_fields: object) -> None:
        raise ArithmeticError("strange")

    with monkeypatch.context() as patch:
        patch.setattr(ColdFolder, "write", fail)
        patch.setattr(ColdFolder, "read", fail)
        for done in (cold.write(1), cold.read(1)):
            assert done.reason == "io"
            assert "strange" in done.detail
    assert cold.write(1).ok


def test_a_process_that_used_a_store_ends_well(tmp_path: Path) -> None:
    """Threads that leave MLX's streams behind can abort the process at its end."""
    script = (
        "import sys; from pathlib import Path\n"
        "from tests.support.cold_rig import ColdRig\n"
        "with ColdRig(Path(sys.argv[1])) as cold:\n"
        "    cold.write(1)\n"
        "    assert cold.read(1).ok\n"
    )
    for attempt in range(3):
        command = [sys.executable, "-c", script, str(tmp_path / str(attempt))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
