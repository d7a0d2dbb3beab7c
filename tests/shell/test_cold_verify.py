"""Checking entries on a real disk."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from omlxd.daemon.cold_verify import BIT_S, Verified, Verifier
from tests.support.cold import entry_bytes, key, namespace, put


def verify(folder: Path, only: frozenset[str] | None = None) -> Verified:
    verifier = Verifier(folder, only=only)
    while verifier.go_on():
        pass
    return verifier.so_far


def test_whole_entries_stay(tmp_path: Path) -> None:
    """What was written is what is read."""
    paths = [put(tmp_path, number, payload=b"x" * 100) for number in range(5)]
    found = verify(tmp_path)
    assert (found.checked, dict(found.bad), found.removed) == (5, {}, 0)
    assert found.bytes == sum(path.stat().st_size for path in paths)


def flipped(whole: bytes) -> bytes:
    return whole[:-1] + bytes([whole[-1] ^ 1])


BAD = {
    "truncated": lambda whole: whole[:-1],
    "checksum": flipped,
    "header": lambda whole: whole[:8] + b"{" * (len(whole) - 8),
    "wrong key": lambda whole: entry_bytes(key(7)),
}


@pytest.mark.parametrize("reason", BAD)
def test_bad_entries_go_and_are_counted_by_reason(tmp_path: Path, reason: str) -> None:
    """The others stay."""
    path = put(tmp_path, 1)
    put(tmp_path, 2)
    path.write_bytes(BAD[reason](path.read_bytes()))
    found = verify(tmp_path)
    assert (found.checked, dict(found.bad), found.removed) == (2, {reason: 1}, 1)
    assert not path.exists()
    assert verify(tmp_path).bad == {}


def test_an_empty_file_is_truncated(tmp_path: Path) -> None:
    """What a full disk leaves behind."""
    put(tmp_path, 1).write_bytes(b"")
    assert dict(verify(tmp_path).bad) == {"truncated": 1}


def test_one_model_can_be_verified_alone(tmp_path: Path) -> None:
    """Entries of other namespaces are not read."""
    put(tmp_path, 1).write_bytes(b"bad")
    put(tmp_path, 2, of=namespace(2))
    found = verify(tmp_path, only=frozenset({namespace(2)}))
    assert (found.checked, dict(found.bad)) == (1, {})


def test_an_entry_that_goes_meanwhile_is_nothing_wrong(tmp_path: Path) -> None:
    """Workers and the janitor remove entries while others are read."""
    paths = [put(tmp_path, number * 256) for number in range(2)]  # in one folder
    now = itertools.count(step=BIT_S)
    verifier = Verifier(tmp_path, only=None, clock=lambda: next(now))
    assert verifier.go_on()
    for path in paths:
        path.unlink()
    assert not verifier.go_on()
    assert (verifier.so_far.checked, dict(verifier.so_far.bad)) == (1, {})


def test_it_stops_for_breath(tmp_path: Path) -> None:
    """One call reads for a quarter of a second, but at least one entry."""
    for number in range(3):
        put(tmp_path, number)
    now = itertools.count(step=BIT_S)
    verifier = Verifier(tmp_path, only=None, clock=lambda: next(now))
    steps = [(verifier.go_on(), verifier.so_far.checked) for _ in range(4)]
    assert steps == [(True, 1), (True, 2), (True, 3), (False, 3)]
