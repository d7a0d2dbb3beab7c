"""What follows from a spec, for the HTTP side and for people."""

from __future__ import annotations

from pathlib import Path

import pytest

from omlxd.daemon.serving import consequences, server_settings
from omlxd.reconcile.state import Phase
from omlxd.spec.model import Spec
from omlxd.spec.report import Change
from tests.unit.daemon.build import spec

HOME = Path("/home/you/.omlx")
TTL = Change('models."a".ttl', 60, 90, "live", "a")
TEMPLATE = Change('models."a".chat_template', None, "x", "drain", "a")
LISTEN = Change("server.listen", ["127.0.0.1:1"], ["127.0.0.1:2"], "rebind")
GONE = Change('models."a"', {"ttl": 60}, None, "drain", "a")


def test_the_http_side_gets_resolved_keys_and_its_own_hosts() -> None:
    """API keys come resolved; the hosts it listens on are answered, without ports and brackets."""
    text = (
        '[server]\nlisten = ["127.0.0.1:8000", "[::1]:8001"]\napi_keys = ["env:K"]\n'
        'cors_origins = ["http://x"]\nmetrics = true\nrequest_timeout = "2m"\n'
        "require_key_on_loopback = true\n[logging]\nprompts = true\n"
    )
    settings = server_settings(HOME, spec(text), ("secret",))
    assert settings.api_keys == ("secret",)
    assert settings.listen_hosts == ("127.0.0.1", "::1")
    assert (settings.cors_origins, settings.request_timeout_s) == (("http://x",), 120)
    assert settings.metrics
    assert settings.require_key_on_loopback
    assert settings.log_prompts


def test_the_defaults_are_those_of_the_spec() -> None:
    """An empty file gives the settings of the schema, not of the dataclass."""
    settings = server_settings(HOME, Spec(), ())
    assert settings.allowed_hosts == Spec().server.allowed_hosts
    assert settings.listen_hosts == ("127.0.0.1",)
    assert settings.request_timeout_s is None
    assert (settings.media_roots, settings.allow_remote_media) == ((), False)


@pytest.mark.parametrize(
    ("changes", "phase", "told"),
    [
        ([TTL], "ready", "a: applied to the running engine, nothing is reloaded"),
        ([TTL, TEMPLATE], "ready", "a: finishes what it runs, then is replaced"),
        ([TEMPLATE], "loading", "a: finishes what it runs, then is replaced"),
        ([TEMPLATE], "absent", "a: not loaded; the change counts from its next load"),
        ([TTL], "failed", "a: not loaded; the change counts from its next load"),
    ],
)
def test_one_sentence_for_a_model(changes: list[Change], phase: Phase, told: str) -> None:
    """What its changes cost it, as it is now."""
    assert consequences(changes, {"a": phase}, {"a"}) == [told]


def test_a_plist_that_goes_out_of_date() -> None:
    """Under launchd a change of what the plist was rendered from asks for a new one."""
    grace = Change("server.shutdown_grace", 20, 60, "live")
    (listener, service) = consequences([LISTEN, grace], {}, set(), held=["127.0.0.1:1"])
    assert listener.startswith("listener: ")
    assert service == (
        "service: launchd's plist goes by server.listen and server.shutdown_grace and must be "
        "reinstalled after the save: omlxctl service install"
    )
    assert consequences([grace], {}, set()) == []
    assert consequences([TTL], {}, {"a"}, held=["127.0.0.1:1"]) == [
        "a: not loaded; the change counts from its next load"
    ]


def test_a_model_that_goes() -> None:
    """It is unloaded, not replaced; one that is not loaded just goes."""
    unloaded = ["a: finishes what it runs, then is unloaded"]
    assert consequences([GONE], {"a": "ready"}, set()) == unloaded
    assert consequences([GONE], {}, set()) == ["a: no longer served"]


def test_models_that_go_without_a_key_of_their_own() -> None:
    """serve_undeclared = false unloads what nobody declared, and says so of what is loaded."""
    change = Change("discovery.serve_undeclared", True, False, "live")
    told = consequences([change], {"a": "ready", "b": "absent", "c": "ready"}, {"c"})
    assert told == ["a: finishes what it runs, then is unloaded"]


def test_a_rebind_is_said_once() -> None:
    """Changes that touch no model and no listener have no sentence."""
    level = Change("logging.level", "info", "debug", "live")
    assert consequences([LISTEN, level, LISTEN], {"b": "ready"}, {"b"}) == [
        "listener: the new address is bound, running responses finish on the old one"
    ]
    assert consequences([], {"b": "ready"}, {"b"}) == []
