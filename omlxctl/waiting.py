"""Waiting on the daemon's status stream, across its restarts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

from omlxctl import exits
from omlxctl.client import Client, Disconnected, NotRunning, decode
from omlxctl.exits import CtlError
from omlxctl.verdicts import COMING_UP_S, Verdict
from omlxd.control.wire import Status
from omlxd.errors import ModelNotFound
from omlxd.units import format_duration

WAIT_S = 600.0  # as long as a model may take to start
_RETRY_S = 0.1


def wait_for(
    client: Client, judge: Callable[[Status], Verdict], *, timeout_s: float = WAIT_S
) -> Status:
    """The first snapshot that `judge` accepts.

    Raises CtlError: timed out (5), hopeless (1), not running for COMING_UP_S (3).
    """
    deadline = None if math.isinf(timeout_s) else time.monotonic() + timeout_s
    missing = "omlxd has not answered"
    try:
        for status in _snapshots(client, deadline):
            verdict = _verdict(judge, status)
            if verdict.done:
                return status
            if verdict.hopeless:
                raise CtlError(verdict.why, hint="its log says more: omlxctl logs")
            missing = verdict.why
    except TimeoutError as error:
        raise CtlError(
            f"timed out after {format_duration(timeout_s)}: {missing}", exit_code=exits.TIMED_OUT
        ) from error
    raise AssertionError("the stream of snapshots ended")


def _verdict(judge: Callable[[Status], Verdict], status: Status) -> Verdict:
    try:
        return judge(status)
    except ModelNotFound as error:
        raise CtlError(error.message, exit_code=exits.NO_SUCH_OBJECT) from error


def _snapshots(client: Client, deadline: float | None) -> Iterator[Status]:
    reached = time.monotonic()
    while True:
        try:
            for line in client.lines("/v1/status?watch=1", deadline=deadline):
                yield decode(line, Status)
                reached = time.monotonic()
        except Disconnected:
            pass  # it restarts, or stops: the next connection shows which
        except NotRunning:
            now = time.monotonic()
            if now - reached > COMING_UP_S or (deadline is not None and now + _RETRY_S > deadline):
                raise
        time.sleep(_RETRY_S)
