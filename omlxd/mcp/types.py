"""What the parts of this package, and the HTTP side, say to each other. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from omlxd.errors import OmlxError

State = Literal["off", "idle", "starting", "ready", "backoff", "stopping"]
Via = Literal["stdio", "http"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One tool server as it is asked for. Equal = nothing to do.

    Of `env` and `headers`, values are secrets: they are shown nowhere.
    """

    name: str
    source: str  # the file that asks for it
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    allowed: tuple[str, ...] | None = None  # tools; None = all
    off: str = ""  # why it cannot be used as it is asked for
    notes: tuple[str, ...] = ()  # what was asked for and has no meaning here

    @property
    def via(self) -> Via:
        return "http" if self.url else "stdio"

    def allows(self, tool: str) -> bool:
        """The one answer to whether a tool may be offered, listed or called."""
        return self.allowed is None or tool in self.allowed

    @property
    def secrets(self) -> tuple[str, ...]:
        return (*self.env.values(), *self.headers.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """On everything that servers do. Times in seconds; None = no limit."""

    max_rounds: int = 8
    call_timeout_s: float = 60.0
    start_timeout_s: float = 30.0
    max_output_bytes: int = 64 << 10
    ttl_s: float | None = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """All tool servers by name, and the limits."""

    servers: Mapping[str, Server] = field(default_factory=dict)
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool as its server lists it. `schema` is the JSON schema of its arguments."""

    name: str
    description: str = ""
    schema: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """A tool under the name that models and clients use: `server__tool`."""

    name: str
    server: str
    tool: Tool


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools of several servers, and why some of the servers have none to offer."""

    tools: tuple[Offered, ...] = ()
    off: Mapping[str, OmlxError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a result. Of what is no text, `text` is the address, if it has one."""

    kind: Literal["text", "image", "audio", "file", "link"]
    text: str = ""
    media_type: str = ""
    size: int = 0  # bytes, of what is not text


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a call gave, as text of at most the allowed size."""

    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerView:
    """One tool server as it is, for people."""

    name: str
    via: Via
    source: str
    state: State
    reason: str = ""  # why it is off, or waits before it is started again
    retry_in_s: float | None = None
    pid: int | None = None
    starts: int = 0
    calls: int = 0  # under way
    tools: tuple[str, ...] | None = None  # that may be used; None = not known before a start
    refused: tuple[str, ...] = ()  # tools that it has and the allow-list has not
    missing: tuple[str, ...] = ()  # tools that the allow-list has and it has not
    allow_all: bool = True
    notes: tuple[str, ...] = ()
