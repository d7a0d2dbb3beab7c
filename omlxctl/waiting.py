"""Waiting on the daemon's status stream, across its restarts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

from omlxctl import exits
from omlxctl.client import Client, Disconnected, NotRunning, decode
from omlxctl.exits import CtlError
from omlxctl.verdicts import FIRST_SCAN_S, Verdict
from omlxd.control.wire import Status
from omlxd.errors import ModelNotFound
from omlxd.units import format_duration

WAIT_S = 600.0  # as long as a model may take to start
COMING_UP_S = 10.0  # how long a daemon that does not answer may take to come up
_RETRY_S = 0.1


def wait_for(
    client: Client, judge: Callable[[Status], Verdict], *, timeout_s: float = WAIT_S
) -> Status:
    """The first snapshot that `judge` accepts.

    Raises CtlError: timed out (5), hopeless (1), no such model (4), not running for
    COMING_UP_S (3).
    """
    deadline = None if math.isinf(timeout_s) else time.monotonic() + timeout_s
    verdict = Verdict(False, "omlxd has not answered")
    try:
        for status in _snapshots(client, deadline):
            verdict = judge(status)
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


def _snapshots(client: Client, deadline: float | None) -> Iterator[Status]:
    reached = time.monotonic()
    while True:
        try:
            for line in client.lines("/v1/status?watch=1", deadline=deadline):
                status = decode(line, Status)
                yield status
                reached = time.monotonic()
                if status.uptime_s <= FIRST_SCAN_S:
                    break  # asked anew, as no change may tell that its search for models is over
        except Disconnected:
            pass  # it restarts, or stops: the next connection shows which
        except NotRunning:
            now = time.monotonic()
            if now - reached > COMING_UP_S or (deadline is not None and now + _RETRY_S > deadline):
                raise
        time.sleep(_RETRY_S)
