"""A cache that fails is a cache that misses: nobody's request pays for it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from omlxd.errors import MemoryExceeded
from omlxd.ipc.messages import CacheCommand, CacheDone, LiveSettings
from omlxd.kv.types import EntryKey
from omlxd.worker.cold_folder import ColdFolder
from omlxd.worker.pages import Pages, PagesError
from omlxd.worker.piece import Piece
from omlxd.worker.prefix_cache import Rates
from omlxd.worker.prefix_cold import RATE_GOOD_S, ReadRate
from tests.support.prefixes import BLOCK, Truth, cold, tokens, warm_from_disk

pytestmark = pytest.mark.mlx

PROMPT = tokens(100, 95)


@pytest.fixture(autouse=True)
def frequent_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omlxd.worker.prefix_report.INTERVAL_S", 0.02)


@pytest.fixture
def model(tiny_models: Path) -> Path:
    return tiny_models / "tiny-llama"


def raises(*_: Any, **__: Any) -> Any:
    raise PagesError("not today")


@pytest.mark.parametrize(("method", "what"), [("cut", "store"), ("join", "join")])
def test_caches_that_cannot_be_cut_or_joined_are_run_instead(
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    method: str,
    what: str,
) -> None:
    """Each request is served from its first token; it is counted, and said once."""
    with Truth(model) as truth:
        truth.rig.engine.facts.result()
        monkeypatch.setattr(Pages, method, raises)
        for name in ("first", "again", "once more"):
            truth.ask(name, PROMPT)
            assert truth.cached(name) == 0
        truth.wait_for_report(lambda report: report.counts.get(f"{what} failed", 0) > 1)
    assert capfd.readouterr().err.count("is served without") == 1


def test_a_model_that_cannot_be_cut_is_served_and_says_why(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its engine has no cache: nothing to match, nothing to clear."""
    monkeypatch.setattr(Pages, "inspect", lambda model: "it uses SomeCache")
    with Truth(model) as truth:
        facts = truth.rig.engine.facts.result()
        assert (facts.prefix_reuse, facts.prefix_reuse_reason) == (False, "it uses SomeCache")
        for name in ("first", "again"):
            truth.ask(name, PROMPT)
            assert truth.cached(name) == 0
            assert truth.usage(name).match is None
        truth.rig.engine.command_cache(CacheCommand(3, "clear"))
        truth.rig.wait_for(lambda: truth.rig.cache_frames == [CacheDone(3, 0, 0)])


def test_a_read_that_is_known_to_lose_is_not_begun(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prompt is run, and the request tells why."""
    with Truth(model, **cold(tmp_path / "cold")) as truth:
        truth.ask("first", PROMPT)
    with warm_from_disk(model, tmp_path / "cold") as truth:
        monkeypatch.setattr(Rates, "reading_loses", lambda self, now: "reading is slow")
        truth.ask("again", PROMPT)
        match = truth.usage("again").match
        assert match is not None
        assert (truth.cached("again"), match.cold_skipped) == (0, "reading is slow")


def test_reading_loses_only_if_both_rates_are_known() -> None:
    """And for as long as the measurement says anything; then the next hit measures again."""
    rate, run_s = ReadRate(), [None, 0.001]
    rates = Rates(rate, lambda: run_s[-1])
    assert rates.reading_loses(0.0) == ""
    rate.measured(tokens=100, seconds=1.0, now=10.0)
    assert "10.00 ms a token, running it 1.00 ms" in rates.reading_loses(11.0)
    assert rates.reading_loses(10.0 + RATE_GOOD_S + 1) == ""
    rate.measured(tokens=100, seconds=0.05, now=200.0)
    assert rates.reading_loses(200.0) == ""
    rate.measured(tokens=100, seconds=1.0, now=201.0)
    run_s.append(None)
    assert rates.reading_loses(201.0) == ""


class Stuck:
    """A disk that takes no write until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.freed = threading.Event()
        real = ColdFolder.write

        def write(folder: ColdFolder, key: EntryKey, piece: Piece, **more: Any) -> int:
            assert self.freed.wait(50)
            return real(folder, key, piece, **more)

        monkeypatch.setattr(ColdFolder, "write", write)


def test_what_the_end_leaves_no_time_for_is_said(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The engine ends in time although the disk does not answer."""
    disk = Stuck(monkeypatch)
    monkeypatch.setattr("omlxd.worker.prefix_cache.FLUSH_S", 0.2)
    with Truth(model, **cold(tmp_path / "cold")) as truth:
        truth.ask("first", PROMPT)
    said = capfd.readouterr().err
    assert "8 cache entries" in said  # blocks and a tail
    assert "were not written" in said
    disk.freed.set()


def test_a_clear_waits_for_what_is_being_written(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that came after the answer would be found again."""
    disk = Stuck(monkeypatch)
    with Truth(model, **cold(tmp_path / "cold")) as truth:
        truth.ask("first", PROMPT)
        truth.rig.engine.command_cache(CacheCommand(5, "clear"))
        truth.ask("other", tokens(40, 96))  # commands are taken in order: the clear waits
        assert not any(isinstance(each, CacheDone) for each in truth.rig.cache_frames)
        disk.freed.set()
        truth.rig.wait_for(lambda: CacheDone in map(type, truth.rig.cache_frames))
        truth.ask("again", PROMPT)
        assert truth.cached("again") == 0


def test_blocks_of_a_disk_that_was_away_are_written_when_it_is_back(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait in RAM meanwhile, and the tier says that it is degraded."""
    monkeypatch.setattr("omlxd.worker.cold_store.RETRY_S", 0.0)
    folder = tmp_path / "mount" / "cold"
    live = LiveSettings(hot_bytes=64 << 20, prefill_step_tokens=64, cold=True)
    with Truth(model, live, cold_dir=str(folder)) as truth:
        truth.ask("first", PROMPT)
        truth.wait_for_report(lambda report: "missing" in report.degraded)
        folder.mkdir(parents=True)
        truth.ask("second", tokens(50, 97))
        report = truth.wait_for_report(
            lambda report: report.cold_entries >= 6 + 3 and not report.queued_bytes
        )
        assert report.degraded == ""


def test_ram_for_blocks_is_not_there_for_rows(model: Path) -> None:
    """The share of memory holds weights, rows and blocks together."""
    with Truth(model) as truth:
        weights = truth.rig.engine.facts.result().weights_bytes
        per_token = truth.rig.engine.facts.result().kv_bytes_per_token
        share = weights + per_token * 4000 * 2
        for name, hot in (("fits", per_token * BLOCK), ("does not", per_token * 5000)):
            live = LiveSettings(memory_share_bytes=share, hot_bytes=hot)
            truth.rig.engine.configure(live)
            truth.rig.submit(name, tokens(3500, 98), max_tokens=1)
            truth.rig.wait(name)
        assert list(truth.rig.failed) == ["does not"]
        assert isinstance(truth.rig.failed["does not"], MemoryExceeded)
