"""`omlxctl cache` for people."""

from __future__ import annotations

from omlxctl.cacheview import (
    cleared_lines,
    collected_lines,
    entries_lines,
    progress_line,
    stats_lines,
    verified_lines,
)
from omlxd.control.cache_wire import CacheCleared, CacheCollected, CacheEntries, VerifyProgress
from tests.fakes.fake_cache import TIME, a_namespace, an_engine, stats

GIB = 2**30


def progress(checked: int, total: int, **bad: int) -> VerifyProgress:
    return VerifyProgress(
        total=total, checked=checked, bytes=GIB, bad=bad, removed=sum(bad.values()), done=True
    )


def test_both_tiers_at_a_glance() -> None:
    """What is held of what may be held, and where."""
    assert stats_lines(stats()) == [
        "hot   1GB of 6GB RAM",
        "cold  12GB of 100GB in /home/you/.omlx/cache; 50GB free on its disk, "
        "1GB written since omlxd started",
    ]


def test_a_tier_that_is_not_in_use_says_why() -> None:
    """In one line under it; turned off it has no figures."""
    lost = stats(status="False", reason="NotOurs", message="/x holds files that are not omlxd's")
    assert stats_lines(lost)[-1] == (
        "      not in use: NotOurs: /x holds files that are not omlxd's"
    )
    off = stats(
        cold_limit_bytes=0, status="Unknown", reason="TurnedOff", message='cache.cold is "0"'
    )
    assert stats_lines(off)[1:] == ['      not in use: TurnedOff: cache.cold is "0"']


def test_every_engine_has_a_row_and_its_counts() -> None:
    """Shares of prompt tokens by source; then what happened, by reason, without zeros, and time."""
    _, _, _, header, row, *counts, store = stats_lines(stats(an_engine()))
    assert " ".join(header.split()) == "MODEL HOT LIMIT ON DISK QUEUED RAM SSD COMPUTED"
    assert row.split() == ["Beta", "1GB", "4GB", "3GB", "0B", "75%", "20%", "5%"]
    assert counts == ["Beta: 3 evicted: budget", "Beta: 7 hits"]
    assert store == "Beta: storing took 1,234.6 s of its time"
    assert stats_lines(stats(an_engine(counts={}, store_s=0.0)))[5:] == []


def test_an_engine_that_was_asked_nothing_has_no_shares() -> None:
    """There is nothing to divide by."""
    row = stats_lines(stats(an_engine(tokens={}, counts={})))[4]
    assert row.split()[-3:] == ["-", "-", "-"]


def test_a_degraded_engine_is_named() -> None:
    """The folder is well, but this engine cannot write to it."""
    assert "Beta: disk not used: disk full" in stats_lines(stats(an_engine(degraded="disk full")))


def test_namespaces_are_listed() -> None:
    """Of models that are not known too: they take room all the same."""
    found = [a_namespace(), a_namespace(namespace="cd" * 32, model="", in_use=False)]
    _, first, second = entries_lines(CacheEntries(dir="/c", namespaces=found))
    assert first.split() == ["abababababab", "Beta", "yes", "200", "3GB", TIME, TIME]
    assert second.split()[:4] == ["cdcdcdcdcdcd", "(not", "known)", "no"]
    assert entries_lines(CacheEntries(dir="/c", namespaces=[])) == ["nothing in /c"]


def test_verifying() -> None:
    """How far it is, and what it found."""
    assert progress_line(progress(1, 4)) == "1 of 4 entries (25%)"
    assert progress_line(progress(0, 0)) == "0 of 0 entries (100%)"
    assert verified_lines(progress(4, 4)) == ["4 entries, 1GB: all are what was written"]
    assert verified_lines(progress(4, 4, truncated=2, checksum=1)) == [
        "4 entries, 1GB: 1 checksum, 2 truncated; 3 removed"
    ]


def test_what_commands_did() -> None:
    """In a sentence or two, with what did not work."""
    gc = CacheCollected(
        entries=9,
        bytes=GIB,
        evicted_entries=1,
        evicted_bytes=2**20,
        temporary_files=2,
        empty_namespaces=3,
    )
    assert collected_lines(gc) == [
        "evicted 1 entries (1MB), removed 2 temporary files and 3 empty namespaces",
        "9 entries (1GB) are left",
    ]
    cleared = CacheCleared(
        hot_entries=5, hot_bytes=GIB, cold_entries=6, cold_bytes=GIB, failed={"Beta": "it is busy"}
    )
    assert cleared_lines(cleared) == [
        "cleared 5 entries (1GB) in memory and 6 (1GB) on disk",
        "Beta: memory not cleared: it is busy",
    ]
