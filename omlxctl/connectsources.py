"""Where the facts for `connect` come from: the daemon, or the files of its home; and the key."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from omlxctl import exits
from omlxctl.client import NotRunning
from omlxctl.configcheck import read_home
from omlxctl.connectclients import KEY_VARIABLE, PROVIDER, Places
from omlxctl.connectfacts import Served
from omlxctl.exits import CtlError
from omlxctl.target import Target
from omlxd.control.wire import ConfigView, ModelStatus, Status
from omlxd.models.card import ModelCard
from omlxd.models.discovery import scan
from omlxd.models.inputs import resolve_path, scan_inputs
from omlxd.spec.model import Spec


def served_by(target: Target) -> Served:
    """What the daemon says; where it is down, what its files say. Raises CtlError."""
    client = target.client()
    try:
        status = client.get("/v1/status", Status)
        values = client.get("/v1/config", ConfigView).values
    except NotRunning:
        return _served_by_files(target.home_path())
    return Served(
        models=status.models, listen=status.listen, values={v.key: v.value for v in values}
    )


def _served_by_files(home: Path) -> Served:
    main = home / "omlx.toml"
    reading = read_home(main, home)
    if reading.spec is None:
        raise CtlError(
            f"omlxd is not running, and {main} cannot stand in for it: it has problems",
            exit_code=exits.INVALID,
            problems=reading.problems,
            hint="put them right (omlxctl validate), or start omlxd",
        )
    values = {value.key: value.value for value in reading.values()}
    models = _models(home, reading.spec)
    if not models:
        raise CtlError(
            "omlxd is not running, and its files name no model",
            exit_code=exits.NOT_RUNNING,
            hint="start it with `omlxd`, or name another one with --home DIR or --socket PATH",
        )
    return Served(models=models, listen=values["server.listen"], values=values)


def _models(home: Path, spec: Spec) -> list[ModelStatus]:
    inputs = scan_inputs(home, spec)
    found = scan(inputs.folders, inputs.declared, kinds=inputs.kinds, trusted=inputs.trusted)
    every = spec.discovery.serve_undeclared
    return [
        _model(card, spec)
        for card in found.cards.values()
        if card.declared or (every and card.servable)
    ]


def _model(card: ModelCard, spec: Spec) -> ModelStatus:
    wanted = spec.effective(card.id)
    windows = [tokens for tokens in (wanted.max_context, card.max_context) if tokens]
    return ModelStatus(
        id=card.id,
        kind=card.kind,
        aliases=list(wanted.aliases),
        phase="absent",
        pin=wanted.pin,
        max_context=min(windows, default=None),
        servable=card.servable,
        reason=card.reason,
    )


# ------------------------------------------------------------------ key


def find_key(target: Target) -> str:
    """OMLX_API_KEY, else the first of server.api_keys that can be read here; "" = none can."""
    if given := os.environ.get(KEY_VARIABLE, "").strip():
        return given
    home = target.home_path()
    spec = read_home(target.config_path(), home).spec
    written = spec.server.api_keys if spec else ()
    return next((key for key in (_readable(one, home) for one in written) if key), "")


def _readable(written: str, home: Path) -> str:
    """The key, or what "env:NAME" and "file:PATH" stand for; "" where that is not at hand."""
    if written.startswith("env:"):
        return os.environ.get(written.removeprefix("env:"), "").strip()
    if written.startswith("file:"):
        try:
            return resolve_path(home, written.removeprefix("file:")).read_text("utf-8").strip()
        except (OSError, ValueError):
            return ""  # of another user, or of another machine: the caller says what to do
    return written.strip()


# ------------------------------------------------------------------ places


def find_places(env: Mapping[str, str], user: Path) -> Places:
    """Where the clients of this user look, as their own variables have it."""

    def folder(variable: str, default: Path) -> Path:
        return Path(env[variable]).expanduser() if env.get(variable) else default

    opencode = folder("XDG_CONFIG_HOME", user / ".config") / "opencode"
    with_comments = opencode / "opencode.jsonc"
    openclaw = folder("OPENCLAW_STATE_DIR", folder("OPENCLAW_HOME", user) / ".openclaw")
    pi = folder("PI_CODING_AGENT_DIR", user / ".pi" / "agent")
    return Places(
        claude_settings=folder("CLAUDE_CONFIG_DIR", user / ".claude") / "settings.json",
        codex_profile=folder("CODEX_HOME", user / ".codex") / f"{PROVIDER}.config.toml",
        opencode_config=with_comments if with_comments.exists() else opencode / "opencode.json",
        openclaw_config=folder("OPENCLAW_CONFIG_PATH", openclaw / "openclaw.json"),
        pi_models=pi / "models.json",
        pi_settings=pi / "settings.json",
    )
