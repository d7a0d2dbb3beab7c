"""What is written down of things that users ask about later."""

from __future__ import annotations

from pathlib import Path

import pytest

from omlxd.daemon.journal import Journal
from omlxd.observe.events import EventRing
from omlxd.spec.report import Change, Problem
from tests.unit.reconcile.build import NOW, engine


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(EventRing(tmp_path / "events.jsonl"))


@pytest.mark.parametrize(
    "reason",
    ["ttl", "evicted", "removed", "settings", "unload", "turn", "start_timeout", "shutdown"],
)
def test_every_reason_has_its_words(journal: Journal, reason: str) -> None:
    """Whatever a plan ends an engine for, drained or at once, the event has a word of its own."""
    journal.draining("m", reason)
    journal.stopping("m", reason, "other" if reason == "evicted" else "")
    drained, stopped = journal.ring.since()
    assert (drained.reason, stopped.model) == ("Draining", "m")
    assert stopped.reason in drained.message
    assert stopped.message.endswith(" for other") == (reason == "evicted")


def test_a_worker_that_never_was(journal: Journal) -> None:
    """A process that could not be started has no pid, and is a warning all the same."""
    before = engine("starting")
    journal.gone("m", before, engine("backoff", failure="no memory"), None, NOW)
    (event,) = journal.ring.since()
    assert (event.type, event.reason, event.message) == ("Warning", "WorkerDied", "no memory")


def test_an_asked_end_is_no_event(journal: Journal) -> None:
    """The order to stop was the event; the exit is for the log."""
    journal.gone("m", engine("stopping"), engine("absent"), None, NOW)
    assert journal.ring.since() == []


def test_an_applied_file_says_what_changed(journal: Journal) -> None:
    """The first since the start, one of many changes, and one whose keys are the same."""
    many = [Change(f"k{number}", 1, 2, "live") for number in range(10)]
    journal.applied(1, (), is_first=True)
    journal.applied(2, many, is_first=False)
    journal.applied(3, (), is_first=False)
    first, second, third = (event.message for event in journal.ring.since())
    assert first == "generation 1: the first in force since the start"
    assert second.startswith("generation 2: k0 (live), ")
    assert second.endswith("k7 (live) and 2 more")
    assert third.startswith("generation 3: no setting has another value")


@pytest.mark.parametrize(
    ("count", "words"),
    [(1, "1 problem: omlx.toml:7: no"), (3, "3 problems, the first: omlx.toml:7: no")],
)
def test_a_rejected_file_says_how_much_is_wrong(journal: Journal, count: int, words: str) -> None:
    """In numbers, with the place of the first problem."""
    journal.rejected([Problem("omlx.toml", 7, 1, "ttl", "no")] * count)
    assert [event.message for event in journal.ring.since()] == [words]
