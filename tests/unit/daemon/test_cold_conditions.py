"""Condition ColdTier of the daemon and of an engine."""

from __future__ import annotations

from typing import Any

import pytest

from omlxd.daemon.cold_keeper import ColdView
from omlxd.daemon.conditions import cold_of_engine, cold_tier
from omlxd.ipc.messages import CacheReport

READY = ColdView(dir="/c", reason="Ready", message="/c")


@pytest.mark.parametrize(
    ("view", "degraded", "expected"),
    [
        (ColdView(), {}, ("Unknown", "Starting", "")),
        (ColdView(reason="TurnedOff", message="off"), {}, ("Unknown", "TurnedOff", "off")),
        (READY, {}, ("True", "Ready", "/c")),
        (READY, {"b": "io", "a": "disk full"}, ("False", "Degraded", "a: disk full; b: io")),
        (ColdView(reason="NotOurs", message="m"), {"a": "io"}, ("False", "NotOurs", "m")),
        (ColdView(dir="/c", reason="DiskFull", message="m"), {}, ("False", "DiskFull", "m")),
    ],
)
def test_the_daemon_says_whether_blocks_are_kept_on_disk(
    view: ColdView, degraded: dict[str, str], expected: tuple[str, str, str]
) -> None:
    """The folder first, then the engines; off is no trouble."""
    found = cold_tier(view, degraded)
    assert (found.type, found.status, found.reason, found.message) == ("ColdTier", *expected)


@pytest.mark.parametrize(
    ("report", "granted", "expected"),
    [
        (None, True, []),
        ({}, True, [("True", "Ready")]),
        ({}, False, [("Unknown", "NotGranted")]),
        ({"degraded": "io"}, True, [("False", "Degraded")]),
    ],
)
def test_an_engine_says_so_for_itself(
    report: dict[str, Any] | None, granted: bool, expected: list[tuple[str, str]]
) -> None:
    """Once its cache has reported."""
    given = None if report is None else CacheReport(namespace="n", **report)
    found = cold_of_engine(given, granted=granted)
    assert [(one.status, one.reason) for one in found] == expected
