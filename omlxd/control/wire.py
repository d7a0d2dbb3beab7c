"""Typed JSON shapes of the control socket, shared with omlxctl. Additive changes only."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from omlxd.spec.report import Change, OriginValue, Problem

API_VERSION = 1


class Condition(Struct, frozen=True):
    """Kubernetes style; `reason` is CamelCase and never empty."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str
    last_transition_time: str  # RFC 3339, UTC


class ConfigStatus(Struct, frozen=True):
    path: str
    valid: bool
    problems: list[Problem]


class MemoryStatus(Struct, frozen=True):
    limit_bytes: int
    footprint_bytes: int
    hot_bytes: int = 0
    cold_bytes: int = 0


class ModelStatus(Struct, frozen=True, kw_only=True):
    id: str
    kind: str
    aliases: list[str]
    phase: str
    pin: bool
    pid: int | None = None
    footprint_bytes: int = 0
    weights_bytes: int = 0
    max_context: int | None = None
    running: int = 0
    waiting: int = 0
    ttl_s: float | None = None
    idle_s: float | None = None
    expires_in_s: float | None = None
    restarts: int = 0
    conditions: list[Condition] = field(default_factory=list)
    path: str = ""
    servable: bool = True
    reason: str = ""  # why it is not servable, not loaded, or waits


class Status(Struct, frozen=True, kw_only=True):
    api_version: int = API_VERSION
    version: str
    pid: int
    uptime_s: float
    generation: int
    observed_generation: int
    config: ConfigStatus
    listen: list[str]
    memory: MemoryStatus
    conditions: list[Condition]
    models: list[ModelStatus]


class Event(Struct, frozen=True, kw_only=True):
    """One thing that happened; `reason` is CamelCase and unique per situation."""

    seq: int
    time: str  # RFC 3339, UTC
    type: Literal["Normal", "Warning"] = "Normal"
    reason: str
    message: str
    model: str = ""


class PlanResult(Struct, frozen=True):
    """Answer of POST /v1/plan: the dry run of a file."""

    valid: bool
    problems: list[Problem]
    changes: list[Change]
    consequences: list[str] = field(default_factory=list)  # one sentence per model or listener


class PlanRequest(Struct, frozen=True):
    """Body of POST /v1/plan: the text of a would-be omlx.toml, and its name for messages."""

    text: str
    file: str


class SettingsPatch(Struct, frozen=True):
    """Body of PATCH /v1/settings: `set` values are TOML values; `unset` are key names.

    Keys may be dotted ("sampling.temperature").
    """

    model: str
    set: dict[str, Any] = field(default_factory=dict)
    unset: list[str] = field(default_factory=list)


class Accepted(Struct, frozen=True):
    """What a change answers: the generation that carries it."""

    generation: int
    changed: bool
    message: str = ""


class RequestStatus(Struct, frozen=True, kw_only=True):
    """One request that has not ended."""

    request_id: str
    model: str
    api: str
    status: str  # waiting_for_model | waiting | prefill | decode
    prompt_tokens: int = 0
    computed_tokens: int = 0
    output_tokens: int = 0
    age_s: float = 0.0


class ConfigView(Struct, frozen=True):
    """Answer of GET /v1/config."""

    path: str
    drop_ins: list[str]
    values: list[OriginValue]


class VersionInfo(Struct, frozen=True, kw_only=True):
    """Answer of GET /v1/version."""

    api_version: int = API_VERSION
    version: str


class ModelList(Struct, frozen=True, kw_only=True):
    """Answer of GET /v1/models."""

    api_version: int = API_VERSION
    models: list[ModelStatus]


class RequestList(Struct, frozen=True, kw_only=True):
    """Answer of GET /v1/requests."""

    api_version: int = API_VERSION
    requests: list[RequestStatus]


class ErrorBody(Struct, frozen=True):
    """Every non-2xx answer of the control socket."""

    code: str
    message: str
    problems: list[Problem] = field(default_factory=list)
