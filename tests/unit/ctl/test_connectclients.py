"""What each coding agent is told, in full."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omlxctl.commands import connect
from omlxctl.connectclients import CLIENTS, Places, Setup, setup_for
from omlxctl.connectfacts import Facts
from omlxctl.connectwrite import rendered
from omlxctl.exits import CtlError

PLACES = Places(
    claude_settings=Path("/u/.claude/settings.json"),
    codex_profile=Path("/u/.codex/omlxd.config.toml"),
    opencode_config=Path("/u/.config/opencode/opencode.json"),
    openclaw_config=Path("/u/.openclaw/openclaw.json"),
    pi_models=Path("/u/.pi/agent/models.json"),
    pi_settings=Path("/u/.pi/agent/settings.json"),
)
FACTS = Facts(url="http://127.0.0.1:8000", model="org/Alpha", context=65_536, max_output=8192)
WITH_KEY = replace(FACTS, needs_key=True, key="sk-1")
WITHOUT_ITS_KEY = replace(FACTS, needs_key=True, key="")
LISTED = {
    "id": "org/Alpha",
    "name": "org/Alpha",
    "input": ["text"],
    "contextWindow": 65_536,
    "maxTokens": 8192,
    "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
    "compat": {"supportsUsageInStreaming": True},
}


def setup(client: str, facts: Facts = FACTS) -> Setup:
    return setup_for(client, facts, PLACES)


def documents(client: str, facts: Facts = FACTS) -> list[Any]:
    """What the files say, in order."""
    return [
        json.loads(rendered(file)) if file.form == "json" else tomllib.loads(rendered(file))
        for file in setup(client, facts).files
    ]


def test_claude_code() -> None:
    """Address without /v1, every role on the one model, both limits, no changing header."""
    assert setup("claude-code").files[0].path == PLACES.claude_settings
    (document,) = documents("claude-code")
    assert document == {
        "env": {
            "ANTHROPIC_BASE_URL": "http://127.0.0.1:8000",
            "ANTHROPIC_AUTH_TOKEN": "none",
            "ANTHROPIC_MODEL": "org/Alpha",
            "ANTHROPIC_DEFAULT_OPUS_MODEL": "org/Alpha",
            "ANTHROPIC_DEFAULT_SONNET_MODEL": "org/Alpha",
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": "org/Alpha",
            "CLAUDE_CODE_SUBAGENT_MODEL": "org/Alpha",
            "CLAUDE_CODE_MAX_CONTEXT_TOKENS": "65536",
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "8192",
            "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
        }
    }


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "org/Claude-tuned", "big[1m]"])
def test_claude_code_would_mistake_some_names(model: str) -> None:
    """A name that it knows comes with a window that it believes in, so an alias is asked for."""
    with pytest.raises(CtlError, match="for a model of its own") as caught:
        setup("claude-code", replace(FACTS, model=model))
    assert "alias" in caught.value.hint


@pytest.mark.parametrize(("context", "limit"), [(40_960, "5120"), (65_536, "32000")])
def test_claude_code_gets_room_for_its_first_prompt(context: int, limit: str) -> None:
    """A long reply that would make it summarise at once is cut to an eighth of the window."""
    (document,) = documents("claude-code", replace(FACTS, context=context, max_output=32_000))
    assert document["env"]["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == limit


def test_codex() -> None:
    """A profile with the responses dialect and the window; no key where none is asked."""
    assert setup("codex").start == "codex --profile omlxd"
    assert setup("codex").env == {}
    (document,) = documents("codex")
    assert document == {
        "model": "org/Alpha",
        "model_provider": "omlxd",
        "model_context_window": 65_536,
        "model_providers": {
            "omlxd": {
                "name": "omlxd",
                "base_url": "http://127.0.0.1:8000/v1",
                "wire_api": "responses",
            }
        },
    }


def test_codex_takes_its_key_from_the_environment() -> None:
    """The file names the variable, so no key is in it."""
    (document,) = documents("codex", WITH_KEY)
    assert document["model_providers"]["omlxd"]["env_key"] == "OMLX_API_KEY"
    assert setup("codex", WITH_KEY).env == {"OMLX_API_KEY": "sk-1"}
    assert "sk-1" not in rendered(setup("codex", WITH_KEY).files[0])


def test_opencode() -> None:
    """A provider with the chat dialect, and the limits by which it compacts."""
    (document,) = documents("opencode")
    assert document == {
        "$schema": "https://opencode.ai/config.json",
        "model": "omlxd/org/Alpha",
        "provider": {
            "omlxd": {
                "npm": "@ai-sdk/openai-compatible",
                "name": "omlxd",
                "options": {"baseURL": "http://127.0.0.1:8000/v1", "apiKey": "none"},
                "models": {
                    "org/Alpha": {
                        "name": "org/Alpha",
                        "limit": {"context": 65_536, "output": 8192},
                    }
                },
            }
        },
    }


def test_openclaw() -> None:
    """A provider beside those it has, with usage in streams, by which it compacts."""
    (document,) = documents("openclaw")
    assert document == {
        "agents": {"defaults": {"model": {"primary": "omlxd/org/Alpha"}}},
        "models": {
            "mode": "merge",
            "providers": {
                "omlxd": {
                    "baseUrl": "http://127.0.0.1:8000/v1",
                    "apiKey": "none",
                    "api": "openai-completions",
                    "models": [LISTED],
                }
            },
        },
    }


def test_pi() -> None:
    """A provider in models.json, and its choice in settings.json."""
    models, settings = documents("pi")
    assert models == {
        "providers": {
            "omlxd": {
                "baseUrl": "http://127.0.0.1:8000/v1",
                "api": "openai-completions",
                "apiKey": "none",
                "models": [LISTED],
            }
        }
    }
    assert settings == {"defaultProvider": "omlxd", "defaultModel": "org/Alpha"}


def test_pi_compacts_in_small_windows_too() -> None:
    """What it keeps and reserves by itself would not fit, so both are made to, and that is said."""
    small = replace(FACTS, context=32_768, max_output=4096)
    assert documents("pi", small)[1]["compaction"] == {
        "reserveTokens": 4096,
        "keepRecentTokens": 9557,
    }
    assert "one compaction setting for all models" in setup("pi", small).notes[0]


def test_copilot() -> None:
    """Variables only; the limit of the prompt is what the reply leaves of the window."""
    assert setup("copilot").files == ()
    assert setup("copilot").env == {
        "COPILOT_PROVIDER_BASE_URL": "http://127.0.0.1:8000/v1",
        "COPILOT_PROVIDER_TYPE": "openai",
        "COPILOT_PROVIDER_WIRE_API": "responses",
        "COPILOT_PROVIDER_API_KEY": "none",
        "COPILOT_MODEL": "org/Alpha",
        "COPILOT_PROVIDER_MAX_PROMPT_TOKENS": "57344",
        "COPILOT_PROVIDER_MAX_OUTPUT_TOKENS": "8192",
    }


def said(client: str, facts: Facts) -> str:
    """All that a setup says, in one text."""
    return json.dumps([documents(client, facts), dict(setup(client, facts).env)])


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_gets_the_key_that_is_needed(client: str) -> None:
    """The key where one is asked; a mark to put it in where it is not known here."""
    assert "sk-1" in said(client, WITH_KEY)
    assert "YOUR-API-KEY" in said(client, WITHOUT_ITS_KEY)


@pytest.mark.parametrize("client", ["opencode", "openclaw", "pi"])
@pytest.mark.parametrize("key", ["!rm", "{env:HOME}", "${HOME}", "$HOME", "a b"])
def test_a_key_that_would_be_something_else_is_refused(client: str, key: str) -> None:
    """These clients run commands and look up variables that a key names."""
    with pytest.raises(CtlError, match="would not take this API key as it is"):
        setup(client, replace(WITH_KEY, key=key))


@pytest.mark.parametrize("client", CLIENTS)
def test_a_window_that_is_too_small_is_said(client: str) -> None:
    """A window that the first prompt and a reply do not fit into is named with both numbers."""
    assert setup(client).notes == ()
    notes = setup(client, replace(FACTS, context=2048, max_output=256)).notes
    assert f"2048 tokens, and the first prompt of {CLIENTS[client].title}" in notes[-1]


@pytest.mark.parametrize("client", ["opencode", "openclaw", "pi"])
def test_pictures_are_announced_where_they_are_seen(client: str) -> None:
    """A model that sees takes text and images."""
    assert '["text", "image"]' in said(client, replace(FACTS, sees_images=True))
    assert '"image"' not in said(client, FACTS)


@pytest.mark.parametrize("client", CLIENTS)
def test_what_can_be_undone_is_what_is_written(client: str) -> None:
    """Undo looks at the very files that write writes."""
    written = tuple(file.path for file in setup(client).files)
    assert CLIENTS[client].files(PLACES) == written


def test_the_command_names_all_clients() -> None:
    """`connect` offers every client that is known, without reading what is known of them."""
    assert tuple(CLIENTS) == connect.CLIENTS
