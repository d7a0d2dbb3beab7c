"""HTTP/1.1 over the daemon's Unix socket. One connection for each call."""

from __future__ import annotations

import http.client
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from omlxctl import exits
from omlxctl.exits import CtlError
from omlxd import __version__
from omlxd.control.wire import ErrorBody

T = TypeVar("T")
# Room in sockaddr_un, less the closing zero byte.
SUN_PATH_BYTES = 103 if sys.platform == "darwin" else 107
ANSWER_TIMEOUT_S = 30.0
_CHUNK_BYTES = 1 << 16


class NotRunning(CtlError):
    """Nobody listens on the socket."""

    def __init__(self, socket_path: Path) -> None:
        super().__init__(
            f"omlxd is not running: nothing answers on {socket_path}",
            exit_code=exits.NOT_RUNNING,
            hint="start it with `omlxd`, or name another one with --home DIR or --socket PATH",
        )


class Disconnected(CtlError):
    """The daemon went away while it answered."""


class Client:
    """Talks to one daemon. Every failure is a CtlError with the exit code it calls for."""

    def __init__(self, socket_path: Path, *, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        check_length(socket_path)
        self._socket_path = socket_path
        self._timeout_s = timeout_s
        self._skew_told = False

    def call(
        self, method: str, path: str, body: Any = None, *, timeout_s: float | None = None
    ) -> bytes:
        """The body of a 2xx answer; other answers are raised. `timeout_s` for slow commands."""
        timeout_s = timeout_s or self._timeout_s
        connection = self._connect(timeout_s)
        try:
            return self._exchange(connection, method, path, body).read()
        except TimeoutError as error:
            raise CtlError(
                f"omlxd did not answer {method} {path} within {timeout_s:g} s",
                exit_code=exits.TIMED_OUT,
                hint="its log says what it is doing: omlxctl logs",
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise self._disconnected(method, path, error) from error
        finally:
            connection.close()

    def get(self, path: str, shape: type[T]) -> T:
        return decode(self.call("GET", path), shape)

    def lines(
        self, path: str, *, method: str = "GET", body: Any = None, deadline: float | None = None
    ) -> Iterator[bytes]:
        """JSON lines as they come; raises TimeoutError at `deadline` (monotonic clock)."""
        connection = self._connect(_left(deadline))
        try:
            response = self._exchange(connection, method, path, body)
            rest = b""
            # read1 and not readline, which takes a connection that is cut for the end.
            while data := response.read1(_CHUNK_BYTES):
                *lines, rest = (rest + data).split(b"\n")
                yield from lines
                _set_timeout(connection, _left(deadline))
            if rest:
                yield rest
        except TimeoutError:
            raise
        except (OSError, http.client.HTTPException) as error:
            raise self._disconnected(method, path, error) from error
        finally:
            connection.close()

    def _connect(self, timeout_s: float | None) -> _UnixConnection:
        connection = _UnixConnection(self._socket_path, timeout_s)
        try:
            connection.connect()
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise NotRunning(self._socket_path) from error
        except PermissionError as error:
            raise CtlError(
                f"no permission to open the control socket {self._socket_path}",
                hint="it belongs to the user who runs omlxd; run omlxctl as that user",
            ) from error
        except OSError as error:
            raise CtlError(f"cannot connect to {self._socket_path}: {error}") from error
        return connection

    def _exchange(
        self, connection: _UnixConnection, method: str, path: str, body: Any
    ) -> http.client.HTTPResponse:
        payload = None if body is None else msgspec.json.encode(body)
        headers = {} if payload is None else {"Content-Type": "application/json"}
        headers["User-Agent"] = f"omlxctl/{__version__}"
        connection.request(method, path, payload, headers)
        response = connection.getresponse()
        self._tell_skew(response.getheader("omlxd-version"))
        if response.status >= 300:
            raise refusal(response.status, response.read())
        return response

    def _tell_skew(self, daemon_version: str | None) -> None:
        if daemon_version in (None, __version__) or self._skew_told:
            return
        self._skew_told = True
        click.echo(
            f"omlxctl: warning: omlxctl is {__version__} but omlxd is {daemon_version}; "
            "restart omlxd to bring them together",
            err=True,
        )

    def _disconnected(self, method: str, path: str, error: Exception) -> Disconnected:
        return Disconnected(
            f"omlxd broke off while answering {method} {path} ({type(error).__name__})",
            hint="it may be stopping; its log says why: omlxctl logs",
        )


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout_s: float | None) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        try:
            self.sock.connect(os.fspath(self._path))
        except OSError:
            self.close()
            raise


def check_length(socket_path: Path) -> None:
    """Raises CtlError when the path does not fit in a Unix socket address."""
    length = len(os.fsencode(socket_path))
    if length > SUN_PATH_BYTES:
        raise CtlError(
            f"the socket path {socket_path} is {length} bytes long; "
            f"a Unix socket takes {SUN_PATH_BYTES}",
            exit_code=exits.USAGE,
            hint="use a shorter --home, or --socket with a short path",
        )


def refusal(status: int, body: bytes) -> CtlError:
    """A non-2xx answer as the error to end with."""
    exit_code = exits.BY_STATUS.get(status, exits.FAILED)
    try:
        error = msgspec.json.decode(body, type=ErrorBody)
    except msgspec.DecodeError:
        text = body[:200].decode(errors="replace")
        return CtlError(f"omlxd answered {status}: {text}", exit_code=exit_code)
    return CtlError(error.message, exit_code=exit_code, problems=error.problems)


def decode(body: bytes, shape: type[T]) -> T:
    """A typed answer; a shape that is not understood is a CtlError."""
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.DecodeError as error:
        raise CtlError(
            f"the answer of omlxd is not understood: {error}",
            hint="omlxctl and omlxd are of different versions; restart omlxd",
        ) from error


def _left(deadline: float | None) -> float | None:
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _set_timeout(connection: _UnixConnection, timeout_s: float | None) -> None:
    if connection.sock is not None:
        connection.sock.settimeout(timeout_s)
