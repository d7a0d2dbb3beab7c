"""Counting and removing entries on a real disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from omlxd.daemon.janitor import Census, Evicted, clear, evict, remove_empty, take_census
from tests.support.cold import KIB, disk_bytes, key, namespace, put

NOW = 1_700_000_000.0


def census(folder: Path, stale_s: float = 3600.0) -> Census:
    return take_census(folder, is_stale=lambda _, mtime: mtime < NOW - stale_s)


def numbers(folder: Path) -> list[int]:
    """Of the entries that are there."""
    return sorted(int(path.name[2:64], 16) for path in folder.rglob("*.safetensors"))


def temporary(folder: Path, age_s: float) -> Path:
    path = put(folder, 0, age_s=age_s)
    return path.rename(path.with_name(f"{key(0)}.0123abcd.tmp.safetensors"))


def test_a_census_counts_what_the_disk_gives(tmp_path: Path) -> None:
    """All namespaces, in blocks of the file system, with the ages of newest and oldest."""
    put(tmp_path, 1, age_s=10, payload=b"x" * 5000)
    put(tmp_path, 2, age_s=30)
    put(tmp_path, 3, of=namespace(2), age_s=20)
    found = census(tmp_path)
    assert found.bytes == disk_bytes(tmp_path) > 5000
    assert found.entries == 3
    first, second = found.namespaces[namespace(1)], found.namespaces[namespace(2)]
    assert (first.entries, first.newest, first.oldest) == (2, NOW - 10, NOW - 30)
    assert (second.entries, first.bytes + second.bytes) == (1, found.bytes)


def test_a_file_with_two_names_counts_once(tmp_path: Path) -> None:
    """Hard links share their blocks."""
    first = put(tmp_path, 1, payload=b"x" * 9000)
    alone = census(tmp_path).bytes
    other = tmp_path / namespace(2) / first.parent.name / first.name
    other.parent.mkdir(parents=True)
    os.link(first, other)
    assert census(tmp_path).bytes == alone
    assert evict(tmp_path, census(tmp_path), 1).bytes == alone
    assert numbers(tmp_path) == []


FOREIGN = [
    "notes.txt",
    f"{namespace(1)}/notes.txt",
    f"{namespace(1)}/ab/notes.safetensors",
    f"{namespace(1)}/ab/{key(1)}.safetensors",  # not the prefix of its hash
    f"{namespace(1)}/01/{key(1)[:-1]}.safetensors",
    f"{namespace(1)}/01/{key(1)}.safetensors.bak",
    f"{namespace(1)[:-1]}/01/{key(1)}.safetensors",
    f"{namespace(1).upper().replace('0', 'F')}/01/{key(1)}.safetensors",
    f"models/01/{key(1)}.safetensors",
]


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_not_of_our_form_does_not_exist(tmp_path: Path, name: str) -> None:
    """It is neither counted nor removed, whatever is asked for."""
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * 5000)
    os.utime(path, (1, 1))
    found = census(tmp_path, stale_s=0)
    assert (found.bytes, found.entries, found.stale) == (0, 0, 0)
    assert evict(tmp_path, found, 10**9) == clear(tmp_path, only=None) == Evicted(0, 0)
    remove_empty(tmp_path, keeps=())
    assert path.read_bytes() == b"x" * 5000


def test_links_are_not_followed(tmp_path: Path) -> None:
    """Neither a linked file nor a linked folder is ours, and what they point to stays."""
    real, cache = tmp_path / "real", tmp_path / "cache"
    target = put(real, 1)
    (cache / namespace(1) / "01").mkdir(parents=True)
    (cache / namespace(1) / "01" / f"{key(1)}.safetensors").symlink_to(target)
    (cache / namespace(2)).symlink_to(real / namespace(1))
    assert census(cache).entries == 0
    clear(cache, only=None)
    remove_empty(cache, keeps=())
    assert target.exists()


def test_the_oldest_go_first(tmp_path: Path) -> None:
    """Across namespaces, down to what was asked for and no further."""
    for number, age in enumerate([50, 10, 40, 20, 30]):
        put(tmp_path, number, of=namespace(1 + number % 2), age_s=age)
    gone = evict(tmp_path, census(tmp_path), 4 * KIB + 1)
    assert (gone, numbers(tmp_path)) == (Evicted(2, 8 * KIB), [1, 3, 4])


def test_of_equal_age_only_as_many_as_needed_go(tmp_path: Path) -> None:
    """One clock tick may hold thousands of entries."""
    for number in range(8):
        put(tmp_path, number)
    assert evict(tmp_path, census(tmp_path), 9 * KIB) == Evicted(3, 12 * KIB)
    assert len(numbers(tmp_path)) == 5


def test_what_was_used_since_it_was_counted_stays(tmp_path: Path) -> None:
    """A hit between the count and the eviction saves an entry."""
    path = put(tmp_path, 1, age_s=100)
    put(tmp_path, 2, age_s=50)
    found = census(tmp_path)
    os.utime(path, (NOW, NOW))
    assert evict(tmp_path, found, 1).blocks == 0
    assert numbers(tmp_path) == [1, 2]


def test_what_was_removed_since_it_was_counted_is_no_error(tmp_path: Path) -> None:
    """Workers remove bad entries by themselves."""
    put(tmp_path, 1, age_s=100).unlink()
    put(tmp_path, 2, age_s=50)
    found = census(tmp_path)
    put(tmp_path, 2, age_s=50).unlink()
    assert evict(tmp_path, found, 1) == Evicted(0, 0)


def test_temporary_files_go_when_their_writer_must_be_dead(tmp_path: Path) -> None:
    """A fresh one counts and stays, an old one goes; neither is an entry."""
    path = temporary(tmp_path, age_s=100)
    found = census(tmp_path)
    assert (found.bytes, found.entries, found.stale) == (4 * KIB, 0, 0)
    found = census(tmp_path, stale_s=99)
    assert (found.bytes, found.entries, found.stale) == (0, 0, 1)
    assert not path.exists()


def test_one_model_can_be_cleared_alone(tmp_path: Path) -> None:
    """Entries of other namespaces stay."""
    put(tmp_path, 1)
    put(tmp_path, 2, of=namespace(2))
    put(tmp_path, 3, of=namespace(3))
    assert clear(tmp_path, only={namespace(1), namespace(3)}) == Evicted(2, 8 * KIB)
    assert numbers(tmp_path) == [2]


def test_empty_namespaces_go(tmp_path: Path) -> None:
    """Not those of running workers, nor those that hold anything at all."""
    for number in (1, 2, 3):
        put(tmp_path, number, of=namespace(number)).unlink()
    put(tmp_path, 4, of=namespace(4))
    (tmp_path / namespace(3) / "notes.txt").touch()
    assert remove_empty(tmp_path, keeps={namespace(2)}) == 1
    assert sorted(os.listdir(tmp_path)) == [namespace(number) for number in (2, 3, 4)]


def test_a_folder_that_is_gone_is_empty(tmp_path: Path) -> None:
    """A disk may be unmounted at any time."""
    missing = tmp_path / "missing"
    assert census(missing).bytes == 0
    assert clear(missing, only=None) == Evicted(0, 0)
