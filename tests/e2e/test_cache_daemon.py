"""The tiered cache seen from outside: one daemon, a small model, a real disk."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from tests.support.cold import KIB, disk_bytes
from tests.support.daemon import Daemon, Status, config

pytestmark = pytest.mark.e2e

MODEL = "tiny-llama"
LONG = "word " * 120
CACHE = 'block_tokens = 16\ncold_min_free = "1MB"\n'


def text(models: Path, cache: str = CACHE, *, port: int = 0) -> str:
    return config(
        models,
        port=port,
        server="metrics = true",
        body=f'[defaults]\nttl = "never"\n[cache]\n{cache}',
    )


class Served:
    """A daemon with one model, and what its clients see of the cache."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.url = daemon.until_listening()
        self.port = int(self.url.rpartition(":")[2])
        daemon.until(lambda s: any(m["id"] == MODEL for m in s["models"]), "discovered")

    def ask(self, prompt: str) -> tuple[str, int]:
        """Request id, and how many tokens of the prompt were cached."""
        answer = httpx.post(
            f"{self.url}/v1/completions",
            json={"model": MODEL, "prompt": prompt, "max_tokens": 4, "temperature": 0},
            timeout=50,
        )
        usage = answer.json()["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        return answer.headers["x-request-id"], cached

    def until_cold(self, status: str, reason: str = "") -> dict[str, Any]:
        def condition(seen: Status) -> dict[str, Any]:
            return next(c for c in seen["conditions"] if c["type"] == "ColdTier")

        def holds(seen: Status) -> bool:
            found = condition(seen)
            return found["status"] == status and reason in ("", found["reason"])

        return condition(self.daemon.until(holds, f"ColdTier={status} {reason}"))

    def cache(self) -> dict[str, Any]:
        return dict(self.daemon.control("GET", "/v1/cache")[1])

    def until_cache(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Reports of the worker come with the stream of status."""
        self.daemon.until(lambda _: holds(self.cache()), "the cache")
        return self.cache()

    def until_written(self) -> dict[str, Any]:
        """Everything that is to be written is on disk."""

        def holds(found: dict[str, Any]) -> bool:
            engines = found["engines"]
            return (
                bool(engines) and engines[0]["cold_entries"] > 0 and not engines[0]["queued_bytes"]
            )

        return self.until_cache(holds)


@pytest.fixture(scope="module")
def models(tiny_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the one model: its files are what its namespace is of."""
    folder = tmp_path_factory.mktemp("models")
    shutil.copytree(tiny_models / MODEL, folder / MODEL)
    return folder


@pytest.fixture
def served(home: Path, models: Path) -> Iterator[Served]:
    with Daemon(home, text(models)) as daemon:
        served = Served(daemon)
        served.until_cold("True")
        yield served


def test_status_and_metrics_count_both_tiers(served: Served) -> None:
    """What requests stored shows in status, in metrics and on the disk alike."""
    served.ask(LONG)
    found = served.until_written()
    memory = served.daemon.status()["memory"]
    assert memory["hot_bytes"] == found["engines"][0]["hot_bytes"] > 0
    assert memory["cold_bytes"] > 0
    assert served.daemon.ctl("cache", "gc").returncode == 0
    assert served.daemon.status()["memory"]["cold_bytes"] == disk_bytes(
        served.daemon.home / "cache"
    )
    metrics = httpx.get(f"{served.url}/metrics").text
    assert "omlxd_cold_bytes 0.0" not in metrics
    assert "omlxd_cold_written_bytes_total 0.0" not in metrics


def test_why_explains_the_second_request(served: Served) -> None:
    """How much came from where, who stored it, and where the prompts part."""
    first, _ = served.ask(f"{LONG}and now one")
    second, cached = served.ask(f"{LONG}and now another")
    why = served.daemon.ctl("why", second)
    assert why.returncode == 0
    assert f"{cached} came from RAM" in why.stdout
    assert f"stored by {first}" in why.stdout
    assert "first differs from the nearest stored prompt at token" in why.stdout
    as_json = json.loads(served.daemon.ctl("why", second, "--json").stdout)
    assert (as_json["match"]["ram"], as_json["match"]["donor"]) == (cached, first)
    assert served.daemon.ctl("why", "req_nobody").returncode == 4


def test_why_shows_text_only_while_prompts_may_be_logged(served: Served, models: Path) -> None:
    """`logging.prompts` is off at first, and counts from the next request on, both ways."""

    def shows_text(number: int) -> bool:
        request_id, _ = served.ask(f"{LONG}secret number {number}")
        why = served.daemon.ctl("why", request_id).stdout
        assert "first differs from the nearest stored prompt at token" in why
        return "secret number" in why

    def switch(prompts: str) -> None:
        generation = served.daemon.status()["generation"]
        body = f"{CACHE}[logging]\nprompts = {prompts}\n"
        served.daemon.save(text(models, body, port=served.port))
        served.daemon.until_generation(generation + 1)

    served.ask(LONG)
    assert not shows_text(1)
    switch("true")
    assert shows_text(2)
    switch("false")
    assert not shows_text(3)


def test_the_disk_outlives_the_daemon(home: Path, models: Path) -> None:
    """After a restart a prompt's blocks come from disk, and `cache ls` knows whose they are."""
    with Daemon(home, text(models)) as daemon:
        Served(daemon).ask(LONG)
        daemon.stop()
    with Daemon(home, text(models)) as daemon:
        served = Served(daemon)
        served.until_cold("True")
        listed = json.loads(daemon.ctl("cache", "ls", "--json").stdout)["namespaces"]
        assert [(one["model"], one["in_use"]) for one in listed] == [(MODEL, False)]
        request_id, cached = served.ask(LONG)
        assert cached > 100
        assert f"{cached} came from disk" in daemon.ctl("why", request_id).stdout


def test_a_bad_entry_is_found_and_removed(served: Served) -> None:
    """`cache verify` reads all there is: exit 1 with the reason once, then all is well."""
    served.ask(LONG)
    served.until_written()
    path = next((served.daemon.home / "cache").rglob("*.safetensors"))
    path.write_bytes(path.read_bytes()[:-1] + b"\x7f")
    first, second = (served.daemon.ctl("cache", "verify") for _ in range(2))
    assert (first.returncode, "1 checksum; 1 removed" in first.stdout) == (1, True)
    assert (second.returncode, "all are what was written" in second.stdout) == (0, True)
    assert not path.exists()


def test_clear_forgets_both_tiers(served: Served) -> None:
    """The same prompt is computed anew, and nothing is left on the disk in between."""
    served.ask(LONG)
    served.until_written()
    assert served.ask(LONG)[1] > 0
    done = served.daemon.ctl("cache", "clear", "--model", MODEL, "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert disk_bytes(served.daemon.home / "cache") == 0
    assert served.ask(LONG)[1] == 0


def test_the_budget_is_kept(served: Served, models: Path) -> None:
    """A smaller cache.cold evicts the oldest at once, and what comes later too."""
    served.ask(LONG)
    served.until_written()
    folder = served.daemon.home / "cache"
    served.daemon.save(text(models, f'{CACHE}cold = "{16 * KIB}"\n', port=served.port))
    served.until_cache(lambda found: 0 < found["cold_bytes"] <= 16 * KIB)
    assert disk_bytes(folder) <= 16 * KIB
    evicted = [line for line in served.daemon.log("cache_evict") if line["tier"] == "cold"]
    assert evicted[0]["reason"] == "budget"


def test_blocks_make_room_when_memory_is_short(served: Served, models: Path) -> None:
    """Above the limit RAM for blocks shrinks, the model stays; with room again it is used again."""

    def save(memory: str) -> None:
        pinned = f"{CACHE}[models.{MODEL}]\npin = true\n[memory]\n{memory}\n"
        served.daemon.save(text(models, pinned, port=served.port))

    def pressure(seen: Status) -> tuple[str, str]:
        found = next(c for c in seen["conditions"] if c["type"] == "MemoryPressure")
        return found["status"], found["reason"]

    save("")
    served.ask(LONG)
    served.until_cache(lambda found: found["hot_bytes"] > 0)
    taken = served.daemon.status()["memory"]["footprint_bytes"]
    save(f"max_process_memory = {taken * 9 // 10}")
    served.daemon.until(lambda s: pressure(s) == ("True", "AboveLimit"), "above the limit")
    found = served.until_cache(lambda found: found["hot_bytes"] == 0)
    assert (found["hot_limit_bytes"], found["engines"][0]["hot_limit_bytes"]) == (0, 0)
    assert served.ask(LONG)[1] == 0
    save("")
    served.daemon.until(lambda s: pressure(s)[0] == "False", "room again")
    served.ask(LONG)
    assert served.ask(LONG)[1] > 0
    pids = [line["pid"] for line in served.daemon.log("worker_exit")]
    evicted = [line for line in served.daemon.log("cache_evict") if line["tier"] == "hot"]
    assert (pids, evicted[0]["reason"]) == ([], "budget")
    told = [c for c in served.daemon.log("condition") if c["condition"] == "MemoryPressure"]
    assert [c["status"] for c in told] == ["True", "False"]


def test_off_and_on_again(served: Served, models: Path) -> None:
    """cache.cold = "0" is live: nothing is written, nothing removed, no engine is replaced."""
    served.ask(LONG)
    served.until_written()
    pid, kept = served.daemon.model(MODEL)["pid"], disk_bytes(served.daemon.home / "cache")
    served.daemon.save(text(models, f'{CACHE}cold = "0"\n', port=served.port))
    served.until_cold("Unknown", "TurnedOff")
    served.ask("other words " * 50)
    assert disk_bytes(served.daemon.home / "cache") == kept
    served.daemon.save(text(models, port=served.port))
    served.until_cold("True")
    assert served.daemon.model(MODEL)["pid"] == pid


def test_a_folder_of_others_is_left_alone(home: Path, models: Path) -> None:
    """Requests are served without a disk, and status says what to do."""
    (home / "cache").mkdir(parents=True)
    (home / "cache" / "thesis.txt").write_text("years of work")
    with Daemon(home, text(models)) as daemon:
        served = Served(daemon)
        assert "cache.cold_dir" in served.until_cold("False", "NotOurs")["message"]
        served.ask(LONG)
        assert served.ask(LONG)[1] > 0
        assert [path.name for path in (home / "cache").iterdir()] == ["thesis.txt"]
        refused = daemon.ctl("cache", "verify")
        assert (refused.returncode, "NotOurs" in refused.stderr) == (1, True)
        warnings = [line for line in daemon.log("cold_tier") if line["level"] == "warning"]
        assert [line["reason"] for line in warnings] == ["NotOurs"]


def test_two_daemons_do_not_share_a_folder(home: Path, models: Path, tmp_path: Path) -> None:
    """The second one serves without a disk and says who has it."""
    shared = f'{CACHE}cold_dir = "{tmp_path / "shared"}"\n'
    with Daemon(home / "1", text(models, shared)) as first:
        Served(first).until_cold("True")
        with Daemon(home / "2", text(models, shared)) as second:
            condition = Served(second).until_cold("False", "InUse")
            assert str(first.pid) in condition["message"]
