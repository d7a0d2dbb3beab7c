"""What a stopped engine left on disk is as good as what it had in RAM, or it is not used at all."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from omlxd.ipc.messages import LiveSettings
from omlxd.kv.types import EntryKey
from omlxd.worker.cold_folder import ColdFolder
from omlxd.worker.piece import Piece
from tests.support.engine import make_llama4
from tests.support.models import make_tiny
from tests.support.prefixes import (
    BLOCK,
    EVERY_CLASS,
    KV_ONLY,
    RECURRENT,
    WINDOWED,
    Truth,
    cold,
    tokens,
    warm_from_disk,
)

pytestmark = pytest.mark.mlx

PROMPT = tokens(5 * BLOCK + 7, 21)


@pytest.fixture(autouse=True)
def frequent_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omlxd.worker.prefix_report.INTERVAL_S", 0.02)


@pytest.fixture(scope="module")
def models(tiny_models: Path) -> Path:
    make_llama4(tiny_models)
    return tiny_models


def entries(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.safetensors"))


def leave_on_disk(model: Path, folder: Path, prompt: list[int] = PROMPT) -> list[int]:
    """Run a prompt in an engine of its own, which writes what it has when it stops."""
    with Truth(model, **cold(folder)) as truth:
        reply = truth.ask("first", prompt)
    assert entries(folder)
    return reply


@pytest.mark.parametrize("name", EVERY_CLASS)
def test_a_new_engine_goes_on_from_the_files_of_an_old_one(
    models: Path, tmp_path: Path, name: str
) -> None:
    """To the token, or to the last full block; the next request finds the same in RAM."""
    reply = leave_on_disk(models / name, tmp_path / "cold")
    more = [*PROMPT, *reply, *tokens(20, 22)]
    with warm_from_disk(models / name, tmp_path / "cold") as truth:
        truth.ask("goes on", more)
        usage = truth.usage("goes on")
        whole = len(PROMPT) + len(reply)  # a batch runs one token ahead
        assert usage.cached_ram == 0
        assert usage.cached_ssd in ([6 * BLOCK] if name in RECURRENT else [whole - 1, whole])
        truth.ask("again", more)
        assert truth.usage("again").cached_ram == len(more) - 1
        assert truth.usage("again").cached_ssd == 0


@pytest.mark.parametrize("name", [*KV_ONLY, *WINDOWED])
def test_the_very_same_prompt_runs_one_token_in_a_new_engine(
    models: Path, tmp_path: Path, name: str
) -> None:
    """The prompt's tail is on disk by itself: what the reply made of its block is not known."""
    leave_on_disk(models / name, tmp_path / "cold")
    with warm_from_disk(models / name, tmp_path / "cold") as truth:
        truth.ask("again", PROMPT)
        usage = truth.usage("again")
        assert (usage.cached_ram, usage.cached_ssd) == (0, len(PROMPT) - 1)


def test_a_long_conversation_leaves_little_on_disk_twice(models: Path, tmp_path: Path) -> None:
    """Twenty turns, a restart in their middle: at most 1.1 times what was computed."""
    folder, prompt = tmp_path / "cold", tokens(40 * BLOCK, 31)
    for turns in (range(10), range(10, 20)):
        with Truth(models / "tiny-llama", **cold(folder)) as truth:
            for turn in turns:
                reply = truth.ask(f"turn {turn}", prompt)
                prompt = [*prompt, *reply, *tokens(9, 40 + turn)]
    sizes = [path.stat().st_size for path in entries(folder)]
    computed = len(prompt) - 9
    assert sum(sizes) <= 1.1 * max(sizes) * computed / BLOCK


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


HARMS = (flip, halve, empty, Path.unlink)


@pytest.mark.parametrize("name", EVERY_CLASS)
def test_a_bad_file_in_the_middle_shortens_the_prefix(
    models: Path, tmp_path: Path, name: str
) -> None:
    """Never a hole, never a wrong token; a file that was found bad is gone, and written anew."""
    folder = tmp_path / "cold"
    leave_on_disk(models / name, folder)
    lengths = set()
    whole = entries(folder)
    for number, victim in enumerate(whole[:: max(1, len(whole) // 6)]):
        content = victim.read_bytes()
        with warm_from_disk(models / name, folder) as truth:
            HARMS[number % len(HARMS)](victim)
            truth.ask("first", PROMPT)
            lengths.add(truth.cached("first"))
            truth.ask("again", PROMPT)
            assert truth.cached("again") == len(PROMPT) - 1
        if truth.cached("first") < 5 * BLOCK:  # it was asked for
            assert victim.read_bytes() == content
        else:
            victim.write_bytes(content)
    assert lengths <= {*range(0, 5 * BLOCK + 1, BLOCK), len(PROMPT) - 1}
    assert len(lengths) > 1


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-qwen3-next"])
def test_other_weights_under_the_same_name_find_nothing(
    models: Path, tmp_path: Path, name: str
) -> None:
    """Same shapes, same tokenizer, same folder: the old model's blocks are not theirs."""
    import mlx.core as mx

    model = make_tiny(name, tmp_path)
    leave_on_disk(model, tmp_path / "cold")
    weights = mx.load(str(model / "model.safetensors"))
    assert isinstance(weights, dict)
    changed = {key: value * 1.01 for key, value in weights.items()}
    mx.save_safetensors(str(model / "model.safetensors"), changed, {"format": "mlx"})
    other = tmp_path / "other" / name
    other.parent.mkdir()
    model.rename(other)  # the solo run must not take the old weights from memory
    with Truth(other, **cold(tmp_path / "cold")) as truth:
        truth.wait_for_report(lambda report: report.hot_limit_bytes > 0)
        truth.ask("first", PROMPT)
        assert truth.cached("first") == 0
    assert len(list((tmp_path / "cold").iterdir())) == 2


class Gate:
    """Reads stop here until it opens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = threading.Event()
        self.asked = threading.Event()
        real = ColdFolder.read

        def read(folder: ColdFolder, key: EntryKey) -> Piece:
            self.asked.set()
            assert self.opened.wait(50)
            return real(folder, key)

        monkeypatch.setattr(ColdFolder, "read", read)


def test_a_row_whose_prefix_is_read_stands_in_nobodys_way(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts as waiting; rows that came later start and end before it."""
    model = models / "tiny-llama"
    leave_on_disk(model, tmp_path / "cold")
    gate = Gate(monkeypatch)
    with warm_from_disk(model, tmp_path / "cold") as truth:
        truth.submit("reads", PROMPT)
        truth.submit("passes", tokens(200, 23), 40)
        truth.check("passes")
        assert truth.rig.ids("reads") == []
        assert "reads" not in truth.rig.scheduled
        gate.opened.set()
        truth.check("reads")
        assert truth.usage("reads").cached_ssd == len(PROMPT) - 1


def test_reads_begin_when_a_request_comes_not_when_its_turn_comes(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the only slot is taken, what the next one needs is fetched."""
    model = models / "tiny-llama"
    leave_on_disk(model, tmp_path / "cold")
    gate = Gate(monkeypatch)
    with warm_from_disk(model, tmp_path / "cold") as truth:
        one = cold(tmp_path / "cold")["live"]
        truth.rig.engine.configure(
            LiveSettings(max_concurrent_requests=1, hot_bytes=one.hot_bytes, cold=True)
        )
        truth.submit("runs", tokens(20, 24), 3000)
        truth.rig.wait_for(lambda: "runs" in truth.rig.scheduled)
        truth.submit("next", PROMPT)
        assert gate.asked.wait(50)
        assert truth.rig.ids("next") == []
        gate.opened.set()
        truth.rig.engine.cancel("runs")
        truth.check("next")
        assert truth.usage("next").cached_ssd == len(PROMPT) - 1


def test_a_row_can_be_cancelled_while_its_prefix_is_read(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What arrives is kept for the next, which waited for the very same files."""
    model = models / "tiny-llama"
    leave_on_disk(model, tmp_path / "cold")
    gate = Gate(monkeypatch)
    with warm_from_disk(model, tmp_path / "cold") as truth:
        truth.submit("gone", PROMPT)
        truth.submit("same", PROMPT)
        assert gate.asked.wait(50)
        truth.rig.engine.cancel("gone")
        gate.opened.set()
        truth.check("same")
        assert truth.usage("same").cached_ssd == len(PROMPT) - 1
        assert truth.rig.ids("gone") == []


def test_a_disk_that_hangs_is_not_waited_for_for_ever(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prompt is run, and says why; what came too late is there for the next one."""
    model = models / "tiny-llama"
    leave_on_disk(model, tmp_path / "cold")
    gate = Gate(monkeypatch)
    monkeypatch.setattr("omlxd.worker.prefix_cache.PATIENCE_S", 0.1)
    with warm_from_disk(model, tmp_path / "cold") as truth:
        truth.ask("waits", PROMPT)
        match = truth.usage("waits").match
        assert match is not None
        assert (truth.cached("waits"), "longer than" in match.cold_skipped) == (0, True)
        gate.opened.set()
        truth.wait_for_report(lambda report: report.counts["loaded"] >= 5)
        truth.ask("next", PROMPT)
        assert truth.cached("next") == len(PROMPT) - 1


def test_the_cold_tier_can_be_turned_off_and_on(models: Path, tmp_path: Path) -> None:
    """Off, what is on disk is not looked at; on, it is listed again."""
    model, folder = models / "tiny-llama", tmp_path / "cold"
    leave_on_disk(model, folder)
    on = cold(folder)["live"]
    off = LiveSettings(hot_bytes=on.hot_bytes, prefill_step_tokens=64)
    with Truth(model, off, cold_dir=str(folder)) as truth:
        truth.ask("off", PROMPT[:40])
        assert truth.cached("off") == 0
        truth.rig.engine.configure(on)
        truth.wait_for_report(lambda report: report.cold_entries >= 5)
        truth.ask("on", PROMPT)
        assert truth.usage("on").cached_ssd > 0


def test_without_its_folder_the_tier_says_so_and_everything_is_served(
    models: Path, tmp_path: Path
) -> None:
    """A disk that is not mounted costs nobody a request."""
    gone = tmp_path / "not mounted" / "cold"
    live = LiveSettings(hot_bytes=64 << 20, cold=True)
    with Truth(models / "tiny-llama", live, cold_dir=str(gone)) as truth:
        truth.ask("first", PROMPT)
        truth.ask("again", PROMPT)
        assert truth.usage("again").cached_ram == len(PROMPT) - 1
        assert "missing" in truth.wait_for_report(lambda report: bool(report.degraded)).degraded
    assert not gone.exists()
