"""An entry's file gives back exactly what was written, or a reason."""

from __future__ import annotations

import os
import random
import stat
import threading
from pathlib import Path

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlxd.ipc.entry_format import BadEntry
from omlxd.kv.types import EntryKey
from omlxd.worker import entry_file
from omlxd.worker.entry_file import read_entry, write_entry
from omlxd.worker.piece import Piece

pytestmark = pytest.mark.mlx

KEY = EntryKey(bytes(range(32)))
OTHER = EntryKey(bytes(range(1, 33)))


def make_piece(tokens: int = 4) -> Piece:
    mx.random.seed(1)
    piece = Piece(
        "window",
        tokens,
        (
            mx.random.normal((3, 2, tokens, 8)),
            mx.zeros((1, 1, tokens, 0)),
            mx.random.normal((2, 2, tokens, 4)).astype(mx.bfloat16),
            mx.array([[7, -1]], dtype=mx.int32),
        ),
    )
    mx.eval(piece.arrays)
    return piece


def reason(path: Path, key: EntryKey = KEY) -> str:
    with pytest.raises(BadEntry) as caught:
        read_entry(path, key)
    return caught.value.reason


@pytest.fixture
def path(tmp_path: Path) -> Path:
    target = tmp_path / f"{KEY.hex()}.safetensors"
    write_entry(target, KEY, make_piece())
    return target


def test_what_was_written_is_read(path: Path) -> None:
    """Kind, tokens and arrays of any type and width, bit by bit."""
    before, after = make_piece(), read_entry(path, KEY)
    assert (after.kind, after.tokens) == (before.kind, before.tokens)
    for one, other in zip(before.arrays, after.arrays, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert mx.array_equal(one, other)


def test_the_file_is_an_ordinary_safetensors_file(path: Path) -> None:
    """Any tool can look at it."""
    arrays, metadata = mx.load(str(path), return_metadata=True)
    assert sorted(arrays) == ["0", "1", "2", "3"]
    assert metadata["key"] == KEY.hex()
    assert metadata["kind"] == "window"


def test_only_the_owner_may_read_it_and_nothing_is_left_beside_it(path: Path) -> None:
    """Blocks hold what people wrote; the temporary file has become the entry."""
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == [path.name]


def test_the_size_is_the_size_on_disk(path: Path) -> None:
    """What is counted is what the file takes."""
    assert write_entry(path, KEY, make_piece(9)) == path.stat().st_size
    assert read_entry(path, KEY).tokens == 9


def test_arrays_written_and_read_in_other_threads_are_usable_here(tmp_path: Path) -> None:
    """The reader evaluates, so nothing is bound to its thread."""
    path, read, piece = tmp_path / "x.safetensors", [], make_piece()

    def work() -> None:
        write_entry(path, KEY, piece)
        read.append(read_entry(path, KEY))
        mx.synchronize()
        mx.clear_streams()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert mx.array_equal(read[0].arrays[0] + 1, make_piece().arrays[0] + 1)


def test_every_flipped_bit_is_noticed(path: Path) -> None:
    """Of header, metadata, digest and payload; reading raises nothing but BadEntry."""
    whole = path.read_bytes()
    bits = random.Random(3).sample(range(len(whole) * 8), 3000)
    header = range(8 * 8 * 60)
    for bit in {*bits, *header}:
        garbled = bytearray(whole)
        garbled[bit // 8] ^= 1 << bit % 8
        path.write_bytes(garbled)
        assert reason(path) in {"checksum", "header", "truncated"}, f"bit {bit}"


def test_every_truncation_is_noticed(path: Path) -> None:
    """From nothing to all but the last byte, and a byte too many."""
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert reason(path) == "truncated", f"{length} bytes"
    path.write_bytes(whole + b"\0")
    assert reason(path) == "checksum"


@given(st.binary(max_size=400), st.integers(0, 400))
def test_no_bytes_raise_anything_else(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, length: int
) -> None:
    """Whatever lies in the folder is at worst a miss."""
    path = tmp_path_factory.getbasetemp() / "noise.safetensors"
    path.write_bytes(noise)
    assert reason(path) in {"truncated", "header"}
    path.write_bytes(length.to_bytes(8, "little") + noise)
    assert reason(path) in {"truncated", "header"}


def test_a_file_under_another_name_is_refused(path: Path) -> None:
    """A renamed or copied file never answers for another entry."""
    moved = path.rename(path.with_name(f"{OTHER.hex()}.safetensors"))
    assert reason(moved, OTHER) == "wrong key"


def test_a_file_of_another_layout_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it has the same name and is whole."""
    monkeypatch.setattr(entry_file, "LAYOUT_VERSION", 2)
    assert reason(path) == "header"


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    """No file, no folder, a folder in its place."""
    assert reason(tmp_path / "none.safetensors") == "absent"
    assert reason(tmp_path / "none" / "none.safetensors") == "absent"
    assert reason(tmp_path) == "io"


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rename comes last; what was begun is taken away."""

    def fail(*_names: Path) -> None:
        raise OSError(5, "input/output error")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="input/output error"):
        write_entry(path, KEY, make_piece(9))
    assert read_entry(path, KEY).tokens == 4
    assert os.listdir(path.parent) == [path.name]


def test_a_write_into_no_folder_is_an_error(tmp_path: Path) -> None:
    """The folder is its owner's to make."""
    with pytest.raises(FileNotFoundError):
        write_entry(tmp_path / "none" / "x.safetensors", KEY, make_piece())


def test_threads_that_read_and_write_never_wait_for_one_that_clears_the_cache(
    tmp_path: Path,
) -> None:
    """The engine does so at every chunk of a prompt, holding the interpreter."""
    piece = make_piece()

    def work(number: int) -> None:
        path = tmp_path / str(number)
        for _ in range(100):
            write_entry(path, KEY, piece)
            read_entry(path, KEY)
        mx.synchronize()
        mx.clear_streams()

    threads = [threading.Thread(target=work, args=[number], daemon=True) for number in range(2)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        mx.clear_cache()
