"""The spec and the discovered folders, put together."""

from __future__ import annotations

from typing import Any

import pytest

from omlxd.daemon.catalog import (
    UNMEASURED_OVERHEAD,
    Figures,
    Host,
    desired_state,
    memory_limit,
    served_model,
)
from omlxd.ipc.messages import Sampling
from omlxd.models.card import ModelCard
from omlxd.reconcile.state import Desired, EngineSpec
from tests.unit.daemon.build import GIB, card, catalog, spec

HOST = Host(ram_bytes=64 * GIB, default_limit_bytes=56 * GIB)


def desired(text: str, *cards: ModelCard, **given: Any) -> Desired:
    options: dict[str, Any] = {
        "generation": 3,
        "host": HOST,
        "figures": {},
        "pinned_by": {},
        "templates": {},
        "cold_dir": "/home/cache",
    }
    return desired_state(catalog(text, *cards), spec(text), **(options | given))


def engine(text: str, *, model: str = "a", **given: Any) -> EngineSpec:
    return desired(text, card(model), **given).engines[model]


# ------------------------------------------------------------------ what is served


def test_declared_and_discovered_models_are_served() -> None:
    """Each by its id; a declared one with its own keys, an undeclared one with the defaults."""
    found = catalog('[defaults]\nttl = "1m"\n[models.a]\nttl = "9m"\n', card("a"), card("b"))
    assert {name: (e.declared, e.servable, e.spec.ttl) for name, e in found.items()} == {
        "a": (True, True, 540),
        "b": (False, True, 60),
    }


def test_undeclared_models_can_be_left_out() -> None:
    """With serve_undeclared = false only what is written down is there."""
    found = catalog("[discovery]\nserve_undeclared = false\n[models.a]\n", card("a"), card("b"))
    assert list(found) == ["a"]


def test_what_cannot_be_served_is_shown_if_it_is_declared() -> None:
    """With its reason; an undeclared folder that cannot be served is nobody's wish."""
    broken = {"servable": False, "reason": "the folder has no weights"}
    found = catalog("[models.a]\n[models.new]\n", card("a", **broken), card("b", **broken))
    assert {name: entry.reason for name, entry in found.items()} == {
        "a": "the folder has no weights",
        "new": "its folder has not been looked for yet",
    }
    state = desired("[models.a]\n[models.new]\n", card("a", **broken))
    assert state.engines == {}


@pytest.mark.parametrize(
    ("asked", "own", "served"), [(None, 4096, 4096), (1024, 4096, 1024), (9000, 4096, 4096)]
)
def test_the_served_window(asked: int | None, own: int, served: int) -> None:
    """The smaller of the model's own and what was asked for."""
    text = "[models.a]\n" + (f"max_context = {asked}\n" if asked else "")
    assert catalog(text, card("a", max_context=own))["a"].max_context == served


def test_clients_are_told_the_scaled_window() -> None:
    """What HTTP clients see of one model, with its window times the factor."""
    text = '[models.a]\naliases = ["x"]\ncontext_scale_factor = 0.5\nmax_context = 1001\npin = true'
    found = catalog(text, card("a", created=7))["a"]
    model = served_model(found, "ready")
    assert (model.max_context, model.model_context, model.created) == (500, 4096, 7)
    assert (model.aliases, model.phase, model.pin) == (("x",), "ready", True)
    unknown = catalog("[models.a]\n", card("a", max_context=None))["a"]
    assert served_model(unknown, "absent").max_context is None


def test_an_alias_that_is_the_name_of_another_model_is_dropped() -> None:
    """The model of that name keeps it; the others of the list still lead to the first."""
    found = catalog('[models.a]\naliases = ["b", "c"]\n', card("a"), card("b"))
    assert (found["a"].aliases, found["a"].taken) == (("c",), {"b"})
    assert served_model(found["a"], "ready").aliases == ("c",)
    assert found["b"].taken == frozenset()
    alone = catalog('[models.a]\naliases = ["b", "c"]\n', card("a"))
    assert alone["a"].aliases == ("b", "c")


# ------------------------------------------------------------------ memory


@pytest.mark.parametrize(
    ("cap", "measured", "reason"),
    [
        ("2GB", {}, ""),
        ("10MB", {}, "max_memory = 10MB has no room for it: its weights take 1GB; "),
        ("1GB", {}, "max_memory = 1GB has no room for it: its weights take 1GB; "),
        ("5%", {}, ""),
        ("1%", {}, "max_memory = 655.4MB has no room for it: its weights take 1GB; "),
        ("1200MB", {"b": Figures(overhead_bytes=GIB)}, ""),
        (
            "1200MB",
            {"a": Figures(overhead_bytes=GIB)},
            "max_memory = 1.2GB has no room for it: its weights take 1GB and 1GB beside them; ",
        ),
    ],
)
def test_max_memory_must_hold_the_weights(
    cap: str, measured: dict[str, Figures], reason: str
) -> None:
    """A cap below what a model takes before its first token makes it not servable, in numbers."""
    found = catalog(f'[models.a]\nmax_memory = "{cap}"\n', card("a"), figures=measured)
    assert found["a"].servable == (not reason)
    assert found["a"].reason.startswith(reason)


def test_what_is_wrong_with_the_files_comes_first() -> None:
    """A model that could not be served anyway keeps that reason."""
    broken = card("a", servable=False, reason="the folder has no weights")
    found = catalog('[models.a]\nmax_memory = "10MB"\n[models.b]\nmax_memory = "1MB"\n', broken)
    assert found["a"].reason == "the folder has no weights"
    assert found["b"].reason == "its folder has not been looked for yet"


def test_the_memory_limit() -> None:
    """The host's own unless a size or a share of the RAM is written."""
    assert memory_limit(spec(), HOST) == 56 * GIB
    assert memory_limit(spec('[memory]\nmax_process_memory = "50%"'), HOST) == 32 * GIB
    state = desired('[memory]\nmax_process_memory = "8GB"\n[cache]\nhot = "25%"')
    assert (state.memory_limit_bytes, state.hot_bytes) == (8 * GIB, 2 * GIB)


def test_the_estimate() -> None:
    """Weights, overhead (assumed until measured) and the KV of a window that was asked for."""
    assert engine("[models.a]").estimate_bytes == GIB + UNMEASURED_OVERHEAD
    measured = {"a": Figures(overhead_bytes=100, kv_bytes_per_token=10)}
    assert engine("[models.a]", figures=measured).estimate_bytes == GIB + 100
    asked = engine("[models.a]\nmax_context = 1000", figures=measured)
    assert asked.estimate_bytes == GIB + 100 + 10_000


def test_max_memory_bounds_estimate_and_worker() -> None:
    """A share is of the RAM; the cap is a load setting, so another one replaces the worker."""
    capped = engine('[models.a]\nmax_memory = "1.75%"')
    assert capped.load.max_memory_bytes == 64 * GIB * 7 // 400
    assert capped.estimate_bytes == 64 * GIB * 7 // 400
    assert capped.load != engine("[models.a]").load


# ------------------------------------------------------------------ settings


def test_live_keys_make_no_other_load() -> None:
    """What a running engine can take over is not among what only a new worker can change."""
    plain = engine("[models.a]")
    text = '[models.a]\nmax_output_tokens = 7\nttl = "1m"\nmax_context = 99\n'
    text += "[models.a.sampling]\ntop_k = 3\n[models.a.chat_template_kwargs]\nx = 1\n"
    changed = engine(text)
    assert changed.load == plain.load
    assert changed.live.max_output_tokens == 7
    assert changed.live.sampling == Sampling(top_k=3)
    assert changed.live.chat_template_kwargs == {"x": 1}
    assert changed.ttl_s == 60


def test_other_files_make_another_load() -> None:
    """A changed fingerprint of the folder, under the same name, replaces the worker."""
    before = desired("", card("a")).engines["a"]
    after = desired("", card("a", fingerprint="f2")).engines["a"]
    assert before.load != after.load
    assert before.live == after.live


def test_own_concurrency_beats_the_schedulers() -> None:
    """`[scheduler]` counts for engines that say nothing themselves."""
    text = "[scheduler]\nmax_concurrent_requests = 3\nprefill_step_tokens = 512\n[models.a]\n"
    assert engine(text).live.max_concurrent_requests == 3
    assert engine(text).live.prefill_step_tokens == 512
    assert engine(text + "max_concurrent_requests = 5").live.max_concurrent_requests == 5
    assert engine("[models.a]").live.prefill_step_tokens is None


def test_templates_are_those_of_the_model_or_the_defaults() -> None:
    """A declared model has its own, or none; undeclared ones have that of `[defaults]`."""
    state = desired("[models.a]\n[models.b]\n", *map(card, "abc"), templates={"a": "A", "": "D"})
    assert {name: e.load.chat_template for name, e in state.engines.items()} == {
        "a": "A",
        "b": None,
        "c": "D",
    }


def test_a_pin_knows_where_it_stands() -> None:
    """The place is kept for messages, and only of a pin."""
    where = {"a": "omlx.toml:2", "b": "omlx.toml:9"}
    state = desired("[models.a]\npin = true\n[models.b]\n", *map(card, "ab"), pinned_by=where)
    assert (state.engines["a"].pinned_by, state.engines["b"].pinned_by) == ("omlx.toml:2", "")
    assert (state.engines["a"].pin, state.generation) == (True, 3)
