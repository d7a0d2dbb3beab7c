"""Which model a client gets, at which address, with which limits."""

from __future__ import annotations

from typing import Any

import pytest

from omlxctl import exits
from omlxctl.connectfacts import NO_KEY, Facts, Served, facts_about, output_limit
from omlxctl.exits import CtlError
from omlxd.control.wire import ModelStatus
from tests.fakes.fake_control import a_model

LOOPBACK = "127.0.0.1:8000"


def served(*models: ModelStatus, listen: tuple[str, ...] = (LOOPBACK,), **values: Any) -> Served:
    return Served(models=models, listen=listen, values=values)


def chat(model_id: str = "org/Alpha", **fields: Any) -> ModelStatus:
    return a_model(model_id, **({"max_context": 65_536} | fields))


def refused(what: Served, name: str | None = None) -> CtlError:
    with pytest.raises(CtlError) as caught:
        facts_about(what, name)
    return caught.value


def test_the_only_model_needs_no_name() -> None:
    """One chat model among others that cannot chat is the one that is meant."""
    facts = facts_about(served(chat(), a_model("E", kind="embedding")), None)
    assert facts == Facts(
        url="http://127.0.0.1:8000",
        model="org/Alpha",
        context=65_536,
        max_output=8192,
        key=NO_KEY,
    )


def test_the_pinned_one_is_meant_and_then_the_fallback() -> None:
    """Among many, the only pinned model; else server.fallback_model, by any of its names."""
    assert facts_about(served(chat("A"), chat("B", pin=True)), None).model == "B"
    both = served(
        chat("A", pin=True, aliases=["main"]),
        chat("B", pin=True),
        **{"server.fallback_model": "main"},
    )
    assert facts_about(both, None).model == "A"


def test_which_model_is_asked_with_a_list() -> None:
    """Where none stands out, all are listed and nothing is guessed."""
    error = refused(served(chat("A"), chat("B"), chat("C", servable=False)))
    assert (error.exit_code, error.message) == (exits.USAGE, "which model? There are: A, B")


def test_no_model_at_all_is_said() -> None:
    """Without a model that can chat there is nothing to point at."""
    error = refused(served(a_model("E", kind="embedding")))
    assert (error.exit_code, error.hint[:14]) == (exits.NO_SUCH_OBJECT, "omlxctl models")


def test_an_unknown_name_lists_the_models() -> None:
    """A name that nothing has is exit 4 with the names there are."""
    error = refused(served(chat("A"), chat("B")), "C")
    assert error.exit_code == exits.NO_SUCH_OBJECT
    assert "A, B" in error.message


@pytest.mark.parametrize(
    ("name", "sent"), [("main", "main"), ("org/Alpha", "org/Alpha"), ("Alpha", "org/Alpha")]
)
def test_an_alias_is_sent_as_it_is(name: str, sent: str) -> None:
    """A client keeps the alias that was asked for; a short name becomes the id."""
    assert facts_about(served(chat(aliases=["main"])), name).model == sent


@pytest.mark.parametrize("kind", ["embedding", "reranker", "ocr"])
def test_what_cannot_chat_is_refused(kind: str) -> None:
    """A model of another kind is named with the kind."""
    error = refused(served(a_model("E", kind=kind)), "E")
    assert f"E cannot chat: it is of kind {kind}" in error.message


def test_what_is_not_served_is_refused_with_the_reason() -> None:
    """The daemon's own reason is passed on."""
    error = refused(served(chat("V", servable=False, kind="vlm", reason="not in this version")))
    assert error.exit_code == exits.NO_SUCH_OBJECT
    error = refused(served(chat("V", servable=False, kind="vlm", reason="not now")), "V")
    assert error.message == "V is not served: not now"


def test_a_window_that_nobody_knows_is_an_error() -> None:
    """No limit is invented."""
    error = refused(served(a_model("A")), "A")
    assert "window of A is not known" in error.message
    assert "max_context" in error.hint


def test_the_reported_window_is_the_scaled_one() -> None:
    """context_scale_factor of the model, else of the defaults, scales the window, not the reply."""
    values: dict[str, Any] = {"defaults.context_scale_factor": 2.0}
    facts = facts_about(served(chat(), **values), None)
    assert (facts.context, facts.max_output) == (131_072, 8192)
    values['models."org/Alpha".context_scale_factor'] = 0.5
    facts = facts_about(served(chat(), **values), None)
    assert (facts.context, facts.max_output) == (32_768, 4096)


@pytest.mark.parametrize(
    ("window", "cap", "limit"),
    [
        (32_768, None, 4096),
        (262_144, None, 16_384),
        (65_536, 20_000, 20_000),
        (8192, 8192, 4096),
        (1, None, 1),
    ],
)
def test_replies_leave_room_for_the_prompt(window: int, cap: int | None, limit: int) -> None:
    """The model's own limit, at most half of the window; without one, an eighth of it."""
    assert output_limit(window, cap) == limit


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        (("127.0.0.1:8000",), "http://127.0.0.1:8000"),
        (("0.0.0.0:80",), "http://127.0.0.1:80"),
        (("[::]:8000",), "http://[::1]:8000"),
        (("localhost:8000",), "http://localhost:8000"),
        (("10.0.0.7:8000", "127.0.0.1:9000"), "http://127.0.0.1:9000"),
        (("10.0.0.7:8000",), "http://10.0.0.7:8000"),
        (("mac.local:8000",), "http://mac.local:8000"),
    ],
)
def test_loopback_is_preferred(listen: tuple[str, ...], url: str) -> None:
    """Of several addresses the one on this machine, where no key is asked."""
    assert facts_about(served(chat(), listen=listen), None).url == url


def test_no_listener_is_an_error() -> None:
    """A daemon that does not listen cannot be connected to."""
    assert "no HTTP listener" in refused(served(chat(), listen=())).message


@pytest.mark.parametrize(
    ("listen", "keys", "asks_all", "needed"),
    [
        (LOOPBACK, [], False, False),
        (LOOPBACK, [], True, False),
        (LOOPBACK, ["***"], False, False),
        (LOOPBACK, ["***"], True, True),
        ("10.0.0.7:8000", ["***"], False, True),
    ],
)
def test_a_key_is_needed_where_it_is_asked(
    listen: str, keys: list[str], asks_all: bool, needed: bool
) -> None:
    """Keys count off loopback, and on it if server.require_key_on_loopback says so."""
    values = {"server.api_keys": keys, "server.require_key_on_loopback": asks_all}
    assert facts_about(served(chat(), listen=(listen,), **values), None).needs_key is needed
