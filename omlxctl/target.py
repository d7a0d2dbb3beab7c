"""Which daemon a command talks to, and how it prints; filled by options before the command runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import click

from omlxctl.client import ANSWER_TIMEOUT_S, Client, NotRunning
from omlxd.control.wire import Status


@dataclass(slots=True)
class Target:
    home: Path | None = None
    socket: Path | None = None
    json: bool = False
    _client: Client | None = None

    def socket_path(self) -> Path:
        return self.socket or self.home_path() / "run" / "omlxd.sock"

    def home_path(self) -> Path:
        """The home folder; a socket alone names it too, as the daemon puts it in HOME/run."""
        if self.home is None and self.socket is not None:
            return self.socket.absolute().parent.parent
        return self.home or Path("~/.omlx").expanduser()

    def client(self, *, timeout_s: float = ANSWER_TIMEOUT_S) -> Client:
        """One for the whole command."""
        if self._client is None:
            self._client = Client(self.socket_path(), timeout_s=timeout_s)
        return self._client

    def config_path(self) -> Path:
        """omlx.toml: a running daemon says, as it may follow another one; else the home's."""
        try:
            return Path(self.client().get("/v1/status", Status).config.path)
        except NotRunning:
            return self.home_path() / "omlx.toml"


pass_target = click.make_pass_decorator(Target)


def emit(body: bytes) -> None:
    """The daemon's JSON, unchanged."""
    click.echo(body.rstrip(b"\n") + b"\n", nl=False)


def is_terminal() -> bool:
    """Whether standard output can redraw in place."""
    return os.isatty(1) and os.environ.get("TERM", "dumb") != "dumb"
