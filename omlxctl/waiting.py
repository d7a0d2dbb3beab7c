"""Waiting on the daemon's status stream, across its restarts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

import click

from omlxctl import exits
from omlxctl.client import Client, Disconnected, NotRunning, decode
from omlxctl.exits import CtlError
from omlxctl.text import safe
from omlxctl.verdicts import FIRST_SCAN_S, Verdict
from omlxd.control.wire import Status
from omlxd.errors import ModelNotFound
from omlxd.units import format_duration

WAIT_S = 600.0  # as long as a model may take to start
COMING_UP_S = 10.0  # how long a daemon that does not answer may take to come up
_RETRY_S = 0.1
_LONGEST_RETRY_S = 1.0


def wait_for(
    client: Client,
    judge: Callable[[Status], Verdict],
    *,
    timeout_s: float = WAIT_S,
    coming_up_s: float = COMING_UP_S,
) -> Status:
    """The first snapshot that `judge` accepts. A note of a verdict goes to stderr, once.

    Raises CtlError: timed out (5), hopeless (1), no such model (4), an error that the daemon
    answers, not running (3) or breaking off (1) for `coming_up_s`.
    """
    deadline = None if math.isinf(timeout_s) else time.monotonic() + timeout_s
    verdict = Verdict(False, "omlxd has not answered")
    is_noted = False
    try:
        for status in _snapshots(client, deadline, coming_up_s):
            verdict = judge(status)
            if verdict.note and not is_noted:
                is_noted = True
                click.echo(f"omlxctl: {safe(verdict.note)}", err=True)
            if verdict.done:
                return status
            if verdict.hopeless:
                raise CtlError(verdict.why, hint="its log says more: omlxctl logs")
    except ModelNotFound as error:
        raise CtlError(error.message, exit_code=exits.NO_SUCH_OBJECT) from error
    except TimeoutError as error:
        code = exits.NO_SUCH_OBJECT if verdict.unknown else exits.TIMED_OUT
        after = format_duration(timeout_s)
        raise CtlError(f"timed out after {after}: {verdict.why}", exit_code=code) from error
    raise AssertionError("the stream of snapshots ended")


def _snapshots(client: Client, deadline: float | None, coming_up_s: float) -> Iterator[Status]:
    reached, pause = time.monotonic(), _RETRY_S
    while True:
        came = False
        try:
            for line in client.lines("/v1/status?watch=1", deadline=deadline):
                status = decode(line, Status)
                yield status
                reached, came = time.monotonic(), True
                if status.uptime_s <= FIRST_SCAN_S:
                    break  # asked anew, as no change may tell that its search for models is over
            pause = _RETRY_S
        except Disconnected:  # it restarts, or stops: the next connection shows which
            pause = min(2 * pause, _LONGEST_RETRY_S)
            if not came:
                _raise_refusal(client)
            if time.monotonic() - reached > coming_up_s:
                raise
        except NotRunning:
            pause, now = _RETRY_S, time.monotonic()
            if now - reached > coming_up_s or (deadline is not None and now + pause > deadline):
                raise
        time.sleep(pause)


def _raise_refusal(client: Client) -> None:
    """A stream that fails has no room for its error: one status by itself shows what it is."""
    try:
        client.call("GET", "/v1/status")
    except (Disconnected, NotRunning):
        return  # the caller's next connection finds out
