"""The real `python -m omlxctl cache …` and `why`, against a fake daemon on a real socket."""

from __future__ import annotations

import json

import pytest

from omlxd.control.cache_wire import VerifyProgress
from omlxd.errors import ModelUnavailable
from tests.fakes.fake_cache import FakeCache, a_match, a_why
from tests.fakes.fake_control import FakeControl
from tests.support.ctl import Ctl


@pytest.fixture
def cache(fake_daemon: FakeControl) -> FakeCache:
    return fake_daemon.cache


async def test_stats_and_ls(up: Ctl) -> None:
    """Tables for people, the daemon's own JSON for scripts."""
    stats, ls = await up("cache", "stats"), await up("cache", "ls")
    assert (stats.code, stats.out.splitlines()[0]) == (0, "hot   1GB of 6GB RAM")
    assert (ls.code, ls.out.splitlines()[0].split()[:2]) == (0, ["NAMESPACE", "MODEL"])
    for command in ("stats", "ls"):
        done = await up("cache", command, "--json")
        assert json.loads(done.out)["api_version"] == 1


async def test_verify_tells_what_it_found(up: Ctl, cache: FakeCache) -> None:
    """Exit code 0 if all is well, 1 if something was removed; JSON is the result alone."""
    assert (await up("cache", "verify", "--model", "Beta")).code == 0
    cache.progress.insert(0, VerifyProgress(total=2, checked=1, bytes=9, bad={}, removed=0))
    cache.progress[-1] = VerifyProgress(
        total=2, checked=2, bytes=9, bad={"checksum": 1}, removed=1, done=True
    )
    done = await up("cache", "verify", "--json")
    assert (done.code, json.loads(done.out)["bad"]) == (1, {"checksum": 1})
    assert done.err == ""
    assert cache.asked == ["verify Beta", "verify"]


async def test_a_verify_that_breaks_off_is_a_failure(up: Ctl, cache: FakeCache) -> None:
    """Without the last line nothing is known to be well."""
    cache.progress = [VerifyProgress(total=2, checked=1, bytes=9, bad={}, removed=0)]
    done = await up("cache", "verify")
    assert (done.code, done.out) == (1, "")
    assert "broke off" in done.err


async def test_gc(up: Ctl, cache: FakeCache) -> None:
    """It says what went and what is left."""
    done = await up("cache", "gc")
    assert (done.code, done.out.splitlines()[-1]) == (0, "9 entries (1GB) are left")
    assert cache.asked == ["gc"]


@pytest.mark.parametrize(("answer", "asked"), [("y\n", ["clear Beta"]), ("n\n", []), ("", [])])
async def test_clear_asks_first(up: Ctl, cache: FakeCache, answer: str, asked: list[str]) -> None:
    """Anything but yes, and no answer at all, clears nothing."""
    done = await up("cache", "clear", "--model", "Beta", stdin=answer)
    assert (done.code == 0) == bool(asked)
    assert "everything that is stored for Beta" in done.err
    assert cache.asked == asked


async def test_clear_without_asking(up: Ctl, cache: FakeCache) -> None:
    """--yes; what could not be cleared is told, with exit code 1."""
    assert (await up("cache", "clear", "--yes")).code == 0
    cache.failed = {"Beta": "it did not answer"}
    done = await up("cache", "clear", "--yes")
    assert (done.code, done.out.splitlines()[-1]) == (
        1,
        "Beta: memory not cleared: it did not answer",
    )
    assert cache.asked == ["clear", "clear"]


async def test_refusals(up: Ctl, cache: FakeCache) -> None:
    """No such model is exit 4; no cold tier is exit 1 with the reason."""
    unknown = await up("cache", "verify", "--model", "nobody")
    assert (unknown.code, "nobody" in unknown.err) == (4, True)
    cache.refusal = ModelUnavailable("there is no cold tier now (NotOurs)")
    refused = await up("cache", "gc")
    assert (refused.code, "NotOurs" in refused.err) == (1, True)


async def test_why(up: Ctl, cache: FakeCache) -> None:
    """Sentences, or the daemon's JSON; an unknown request is exit 4."""
    cache.whys["req_1"] = a_why(match=a_match(ram=600), computed_tokens=400)
    done = await up("why", "req_1")
    assert (done.code, "600 came from RAM, 400 were computed" in done.out) == (0, True)
    as_json = await up("why", "req_1", "--json")
    assert json.loads(as_json.out)["match"]["ram"] == 600
    unknown = await up("why", "req_2/x")
    assert (unknown.code, unknown.out) == (4, "")
