"""What each coding agent needs to use omlxd, in its own files and names. Pure.

Names and thresholds were measured with Claude Code 2.1, Codex 0.171, opencode 1.18, OpenClaw
2026.9, Copilot CLI 1.0 and Pi 0.73.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from omlxctl.connectfacts import Facts
from omlxctl.exits import CtlError
from omlxctl.textedit import Entry, Item, Route

PROVIDER = "omlxd"
KEY_VARIABLE = "OMLX_API_KEY"
UNKNOWN_KEY = "YOUR-API-KEY"
# Claude Code compacts at window − min(output, this) − that, and its first prompt must fit below.
CLAUDE_OUTPUT_TOKENS = 20_000
CLAUDE_RESERVE_TOKENS = 13_000
# Pi compacts at window − reserve and keeps the newest; these are its own figures.
PI_RESERVE_TOKENS = 16_384
PI_KEPT_TOKENS = 20_000
# Of the clients that look into a key for references to commands, files and variables.
_PLAIN_KEY = re.compile(r"[A-Za-z0-9._~+/=:-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The clients' own files for this user."""

    claude_settings: Path
    codex_profile: Path
    opencode_config: Path
    openclaw_config: Path
    pi_models: Path
    pi_settings: Path


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """What one file of a client has to say."""

    path: Path
    form: Literal["json", "toml"]
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """All that one client needs."""

    start: str  # the command that then uses it
    files: tuple[SettingsFile, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Client:
    """One client: how it is set up, what files it has, how long its first prompt is."""

    title: str
    first_prompt: int  # tokens, about
    setup: Callable[[Facts, Places], Setup]
    files: Callable[[Places], tuple[Path, ...]]


def setup_for(name: str, facts: Facts, places: Places) -> Setup:
    """Raises CtlError for a model or key that the client would take for something else."""
    client = CLIENTS[name]
    setup = client.setup(facts, places)
    notes = setup.notes
    if facts.context < client.first_prompt + facts.max_output:
        notes += (
            f"the window of {facts.model} is {facts.context} tokens, and the first prompt of "
            f"{client.title} alone takes about {client.first_prompt}; a longer max_context, if the "
            "model has one, or another model will serve better",
        )
    return Setup(start=setup.start, files=setup.files, env=setup.env, notes=notes)


# ------------------------------------------------------------------ clients


def _claude_code(facts: Facts, places: Places) -> Setup:
    if re.search(r"claude|\[1m\]", facts.model, re.IGNORECASE):
        raise CtlError(
            f"Claude Code takes {facts.model} for a model of its own, with a window of its own",
            hint='give it an alias without "claude" and "[1m]" (omlx.toml: aliases = ["main"]), '
            "and name that with --model",
        )
    output = facts.max_output
    if _claude_limit(facts.context, output) < CLIENTS["claude-code"].first_prompt:
        output = min(output, max(1, facts.context // 8))
    env = {
        "ANTHROPIC_BASE_URL": facts.url,
        "ANTHROPIC_AUTH_TOKEN": _key(facts),
        "ANTHROPIC_MODEL": facts.model,
        "ANTHROPIC_DEFAULT_OPUS_MODEL": facts.model,
        "ANTHROPIC_DEFAULT_SONNET_MODEL": facts.model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": facts.model,
        "CLAUDE_CODE_SUBAGENT_MODEL": facts.model,
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(facts.context),
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(output),
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",  # it differs from session to session
    }
    entries = tuple(Entry(("env", name), value) for name, value in env.items())
    return Setup(start="claude", files=(SettingsFile(places.claude_settings, "json", entries),))


def _claude_limit(context: int, output: int) -> int:
    """The prompt length, in tokens, at which it begins to summarise."""
    return context - min(output, CLAUDE_OUTPUT_TOKENS) - CLAUDE_RESERVE_TOKENS


def _codex(facts: Facts, places: Places) -> Setup:
    provider: Route = ("model_providers", PROVIDER)
    values: dict[Route, Any] = {
        ("model",): facts.model,
        ("model_provider",): PROVIDER,
        ("model_context_window",): facts.context,
        (*provider, "name"): PROVIDER,
        (*provider, "base_url"): f"{facts.url}/v1",
        (*provider, "wire_api"): "responses",
    }
    env = {}
    if facts.needs_key:
        values[(*provider, "env_key")] = KEY_VARIABLE
        env[KEY_VARIABLE] = _key(facts)
    profile = SettingsFile(places.codex_profile, "toml", _entries(values))
    return Setup(start=f"codex --profile {PROVIDER}", files=(profile,), env=env)


def _opencode(facts: Facts, places: Places) -> Setup:
    provider: Route = ("provider", PROVIDER)
    model: Route = (*provider, "models", facts.model)
    values: dict[Route, Any] = {
        ("$schema",): "https://opencode.ai/config.json",  # else it adds that by itself
        ("model",): f"{PROVIDER}/{facts.model}",
        (*provider, "npm"): "@ai-sdk/openai-compatible",
        (*provider, "name"): PROVIDER,
        (*provider, "options", "baseURL"): f"{facts.url}/v1",
        (*provider, "options", "apiKey"): _plain_key(facts, "opencode"),
        (*model, "name"): facts.model,
        (*model, "limit", "context"): facts.context,
        (*model, "limit", "output"): facts.max_output,
    }
    if facts.sees_images:
        values[(*model, "attachment")] = True
        values[(*model, "modalities", "input")] = ["text", "image"]
        values[(*model, "modalities", "output")] = ["text"]
    return Setup(
        start="opencode", files=(SettingsFile(places.opencode_config, "json", _entries(values)),)
    )


def _openclaw(facts: Facts, places: Places) -> Setup:
    provider: Route = ("models", "providers", PROVIDER)
    values: dict[Route, Any] = {
        ("agents", "defaults", "model", "primary"): f"{PROVIDER}/{facts.model}",
        ("models", "mode"): "merge",
        (*provider, "baseUrl"): f"{facts.url}/v1",
        (*provider, "apiKey"): _plain_key(facts, "OpenClaw"),
        (*provider, "api"): "openai-completions",
        **_listed_model((*provider, "models"), facts),
    }
    return Setup(
        start="openclaw", files=(SettingsFile(places.openclaw_config, "json", _entries(values)),)
    )


def _pi(facts: Facts, places: Places) -> Setup:
    provider: Route = ("providers", PROVIDER)
    models: dict[Route, Any] = {
        (*provider, "baseUrl"): f"{facts.url}/v1",
        (*provider, "api"): "openai-completions",
        (*provider, "apiKey"): _plain_key(facts, "Pi"),
        **_listed_model((*provider, "models"), facts),
    }
    settings: dict[Route, Any] = {
        ("defaultProvider",): PROVIDER,
        ("defaultModel",): facts.model,
    }
    notes: tuple[str, ...] = ()
    if facts.context < PI_RESERVE_TOKENS + 2 * PI_KEPT_TOKENS:
        room = max(1, facts.context - facts.max_output)
        settings[("compaction", "reserveTokens")] = facts.max_output
        settings[("compaction", "keepRecentTokens")] = room // 3
        notes = ("Pi has one compaction setting for all models; it is made to fit this window",)
    return Setup(
        start="pi",
        files=(
            SettingsFile(places.pi_models, "json", _entries(models)),
            SettingsFile(places.pi_settings, "json", _entries(settings)),
        ),
        notes=notes,
    )


def _copilot(facts: Facts, places: Places) -> Setup:
    """From variables only. Over responses, as reasoning in chat deltas has made it retry."""
    env = {
        "COPILOT_PROVIDER_BASE_URL": f"{facts.url}/v1",
        "COPILOT_PROVIDER_TYPE": "openai",
        "COPILOT_PROVIDER_WIRE_API": "responses",
        "COPILOT_PROVIDER_API_KEY": _key(facts),
        "COPILOT_MODEL": facts.model,
        "COPILOT_PROVIDER_MAX_PROMPT_TOKENS": str(max(1, facts.context - facts.max_output)),
        "COPILOT_PROVIDER_MAX_OUTPUT_TOKENS": str(facts.max_output),
    }
    return Setup(start="copilot", env=env)


CLIENTS = {
    "claude-code": Client("Claude Code", 12_500, _claude_code, lambda p: (p.claude_settings,)),
    "codex": Client("Codex", 9_500, _codex, lambda p: (p.codex_profile,)),
    "opencode": Client("opencode", 8_000, _opencode, lambda p: (p.opencode_config,)),
    "openclaw": Client("OpenClaw", 15_000, _openclaw, lambda p: (p.openclaw_config,)),
    "copilot": Client("Copilot", 12_500, _copilot, lambda p: ()),
    "pi": Client("Pi", 2_000, _pi, lambda p: (p.pi_models, p.pi_settings)),
}


# ------------------------------------------------------------------ shared


def _entries(values: Mapping[Route, Any]) -> tuple[Entry, ...]:
    return tuple(Entry(route, value) for route, value in values.items())


def _listed_model(models: Route, facts: Facts) -> dict[Route, Any]:
    """An element of the model list that OpenClaw and Pi have in common."""
    model: Route = (*models, Item("id", facts.model))
    return {
        (*model, "name"): facts.model,
        (*model, "input"): ["text", "image"] if facts.sees_images else ["text"],
        (*model, "contextWindow"): facts.context,
        (*model, "maxTokens"): facts.max_output,
        (*model, "cost"): {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        # Usage in streams is what they go by when they compact.
        (*model, "compat", "supportsUsageInStreaming"): True,
    }


def _key(facts: Facts) -> str:
    return facts.key or UNKNOWN_KEY


def _plain_key(facts: Facts, title: str) -> str:
    key = _key(facts)
    if not _PLAIN_KEY.fullmatch(key):
        raise CtlError(
            f"{title} would not take this API key as it is: it gives a meaning to some characters",
            hint="use one of letters, digits and . _ ~ + / = : - in server.api_keys",
        )
    return key
