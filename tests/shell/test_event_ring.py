from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path

import pytest

from omlxd.observe.events import Event, EventRing

NOW = 1_800_000_000.25


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "events.jsonl"


def fill(ring: EventRing, count: int) -> None:
    for number in range(count):
        ring.append("Loaded", f"message {number}", now=NOW)


def test_events_are_numbered_and_dated(path: Path) -> None:
    """An event keeps what it was told, and gets a number and a time in UTC."""
    ring = EventRing(path)
    first = ring.append("Loaded", "in 2 s", model="tiny", now=NOW)
    second = ring.append("CrashLoop", "five deaths", model="tiny", type="Warning", now=NOW + 1)
    assert first == Event(
        seq=1,
        time="2027-01-15T08:00:00.250Z",
        type="Normal",
        reason="Loaded",
        message="in 2 s",
        model="tiny",
    )
    assert ring.since() == [first, second]
    assert ring.since(1) == [second]
    assert ring.since(2) == []


def test_the_ring_forgets_the_oldest(path: Path) -> None:
    """No more than its capacity is kept, and numbers go on rising."""
    ring = EventRing(path, capacity=3)
    fill(ring, 10)
    assert [event.seq for event in ring.since()] == [8, 9, 10]


def test_a_restart_continues(path: Path) -> None:
    """The next daemon shows the events of the last one and numbers on."""
    fill(EventRing(path, capacity=3), 10)
    ring = EventRing(path, capacity=3)
    assert [event.message for event in ring.since()] == ["message 7", "message 8", "message 9"]
    assert ring.append("Started", "again", now=NOW).seq == 11


def test_the_file_is_bounded_and_private(path: Path) -> None:
    """However long a daemon runs, the file holds at most twice the ring; nobody else reads it."""
    ring = EventRing(path, capacity=5)
    sizes = []
    for _ in range(40):
        fill(ring, 1)
        sizes.append(len(path.read_text().splitlines()))
    assert max(sizes) == 10
    assert sizes[-1] >= 5
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["events.jsonl"]


def test_half_a_line_from_a_crash_costs_that_line(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What cannot be read is said and left out, and is gone from the file with the next event."""
    fill(EventRing(path), 2)
    with path.open("a") as file:
        file.write('{"seq": 3, "time": "20\n{"seq": "x"}')
    ring = EventRing(path)
    assert capsys.readouterr().err.count("events_not_read") == 2
    assert [event.seq for event in ring.since()] == [1, 2]
    fill(ring, 1)
    assert [json.loads(line)["seq"] for line in path.read_text().splitlines()] == [1, 2, 3]


def test_a_disk_in_trouble_does_not_disturb(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Events go on in memory, the trouble is logged, and the file catches up afterwards."""
    path.parent.write_text("a file where the folder should be")
    ring = EventRing(path)
    fill(ring, 2)
    assert "events_not_saved" in capsys.readouterr().err
    assert len(ring.since()) == 2
    path.parent.unlink()
    fill(ring, 1)
    assert EventRing(path).since() == ring.since()


async def test_subscribers_get_events_from_now_on(path: Path) -> None:
    """Every subscriber gets every later event, in order, until it leaves."""
    ring = EventRing(path)
    fill(ring, 1)
    with ring.subscribe() as one, ring.subscribe() as two:
        reader = asyncio.create_task(anext(one))
        await asyncio.sleep(0)
        fill(ring, 2)
        assert (await reader).seq == 2
        assert (await one.get()).seq == 3
        assert [(await two.get()).seq, (await two.get()).seq] == [2, 3]
    fill(ring, 1)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(one.get(), 0.01)


async def test_a_slow_subscriber_loses_the_oldest_and_knows(path: Path) -> None:
    """A reader that does not keep up holds nobody up and can say how much it missed."""
    ring = EventRing(path)
    with ring.subscribe(size=3) as slow, ring.subscribe() as other:
        fill(ring, 5)
        assert slow.dropped == 2
        assert [(await slow.get()).seq for _ in range(3)] == [3, 4, 5]
        assert (await other.get()).seq == 1
        assert other.dropped == 0
