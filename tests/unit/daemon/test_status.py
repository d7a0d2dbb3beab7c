"""The state of the daemon in the shapes of the control socket."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from omlxd.control.wire import Condition as WireCondition
from omlxd.control.wire import ModelStatus
from omlxd.daemon.status import loaded_facts, model_status, rfc3339, wire_conditions
from omlxd.ipc.messages import Loaded, Stats
from omlxd.reconcile.conditions import Condition
from omlxd.reconcile.state import EngineObserved
from tests.unit.daemon.build import card, catalog
from tests.unit.reconcile.build import NOW, engine

LOADED = Loaded(duration_s=1.0, weights_bytes=5, max_context=2048, batches=True, prefix_reuse=True)


def stats(running: int, waiting: int) -> Stats:
    return Stats(running=running, waiting=waiting, active_bytes=0, cache_bytes=0)


def status(
    observed: EngineObserved, text: str = '[models.a]\nttl = "60s"\n', **given: Any
) -> ModelStatus:
    options: dict[str, Any] = {
        "pid": 77,
        "loaded": None,
        "stats": None,
        "conditions": (),
        "wait": "",
        "now": NOW,
    }
    return model_status(catalog(text, card("a"))["a"], observed, **(options | given))


def test_times_are_rfc_3339_in_utc() -> None:
    """With milliseconds and a Z, as everywhere."""
    assert rfc3339(0.25) == "1970-01-01T00:00:00.250Z"


def test_a_model_that_is_not_loaded() -> None:
    """All fields are there: what is known of its files, and no process."""
    shown = status(EngineObserved())
    assert (shown.phase, shown.pid, shown.idle_s, shown.expires_in_s) == (
        "absent",
        None,
        None,
        None,
    )
    assert (shown.weights_bytes, shown.max_context, shown.path) == (2**30, 4096, "/models/a")
    assert (shown.servable, shown.reason, shown.ttl_s) == (True, "", 60)


def test_a_model_without_a_folder_has_no_path() -> None:
    """A declared model that was not found is nowhere, not in the current folder."""
    lost = catalog("[models.a]\n", replace(card("a"), path=Path()))["a"]
    shown = model_status(
        lost,
        EngineObserved(),
        pid=None,
        loaded=None,
        stats=None,
        conditions=(),
        wait="",
        now=NOW,
    )
    assert shown.path == ""


def test_an_idle_model_says_when_it_goes() -> None:
    """Idle since its last use, and what is left of its ttl; never below zero."""
    shown = status(engine("ready", last_used=NOW - 15.04), loaded=LOADED)
    assert (shown.pid, shown.idle_s, shown.expires_in_s) == (77, 15.0, 45.0)
    assert shown.max_context == 2048  # what the worker serves, not what was read from disk
    late = status(engine("ready", last_used=NOW - 61))
    assert late.expires_in_s == 0
    early = status(engine("ready", last_used=NOW + 1))
    assert early.idle_s == 0


def test_a_pin_never_expires() -> None:
    """Its ttl has no meaning, so none is shown."""
    shown = status(engine("ready"), '[models.a]\npin = true\nttl = "60s"\n')
    assert (shown.pin, shown.ttl_s, shown.expires_in_s) == (True, None, None)
    assert shown.idle_s is not None
    forever = status(engine("ready"), '[models.a]\nttl = "never"\n')
    assert (forever.ttl_s, forever.expires_in_s) == (None, None)


def test_a_busy_model_is_not_idle() -> None:
    """While anything runs or waits there is no idle time."""
    for busy in (engine("ready", in_flight=1), engine("ready", waiting=1), engine("loading")):
        assert (status(busy).idle_s, status(busy).expires_in_s) == (None, None)


def test_requests_run_or_wait() -> None:
    """Those that queue inside the worker wait, as those do that wait for the model."""
    shown = status(engine("ready", in_flight=5, waiting=2), stats=stats(2, 3))
    assert (shown.running, shown.waiting) == (2, 5)


def test_old_figures_make_no_nonsense() -> None:
    """A worker's figures may be older than the counts: none is negative, none counts twice."""
    shown = status(engine("ready", in_flight=1), stats=stats(0, 3))
    assert (shown.running, shown.waiting) == (0, 1)
    ended = status(engine("ready"), stats=stats(4, 2))
    assert (ended.running, ended.waiting) == (0, 0)


def test_a_process_that_is_gone_is_not_shown() -> None:
    """In back-off there is none, whatever was known a moment ago."""
    assert status(engine("backoff")).pid is None


def test_the_reason_is_the_most_telling_one() -> None:
    """Not servable, else the last failure, else what it waits for."""
    broken = catalog("[models.a]\n", card("a", servable=False, reason="no weights"))["a"]
    waits = {"wait": "waits for B"}
    assert status(EngineObserved(), **waits).reason == "waits for B"
    assert status(engine("backoff"), **waits).reason == "boom"
    shown = model_status(
        broken,
        EngineObserved(),
        pid=None,
        loaded=None,
        stats=None,
        conditions=(),
        wait="",
        now=NOW,
    )
    assert (shown.servable, shown.reason) == (False, "no weights")


def test_what_a_load_showed() -> None:
    """Batching and reuse, each with its reason where it is not so; nothing before the load."""
    assert loaded_facts(None) == ()
    assert [(c.type, c.status) for c in loaded_facts(LOADED)] == [
        ("Batching", "True"),
        ("PrefixReuse", "True"),
    ]
    alone = Loaded(
        duration_s=1,
        weights_bytes=1,
        max_context=1,
        batches=False,
        batch_reason="chunked caches",
        prefix_reuse_reason="not equal",
    )
    assert [(c.status, c.message) for c in loaded_facts(alone)] == [
        ("False", "chunked caches"),
        ("False", "not equal"),
    ]


def test_conditions_keep_every_field() -> None:
    """The wire has the same five, in the same words."""
    condition = Condition("Ready", "True", "Serving", "yes", "2026-01-02T03:04:05Z")
    assert wire_conditions([condition]) == [
        WireCondition("Ready", "True", "Serving", "yes", "2026-01-02T03:04:05Z")
    ]
