"""omlxctl, with and without a daemon behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from omlxd.control.wire import ConfigStatus
from tests.fakes.fake_control import FakeControl, a_model
from tests.support.control_socket import serving, short_home
from tests.support.ctl import Ctl


@pytest.fixture
def ctl_home() -> Iterator[Path]:
    with short_home() as home:
        yield home


@pytest.fixture
def fake_daemon(ctl_home: Path) -> FakeControl:
    """One idle model with a slash in its id, and one that is pinned and ready."""
    models = a_model("org/Alpha", aliases=["first"]), a_model("Beta", pin=True, phase="ready")
    return FakeControl(*models, config=ConfigStatus(str(ctl_home / "omlx.toml"), True, []))


@pytest.fixture
def down(ctl_home: Path) -> Ctl:
    """omlxctl with no daemon behind it."""
    return Ctl(ctl_home)


@pytest.fixture
async def up(fake_daemon: FakeControl, down: Ctl) -> AsyncIterator[Ctl]:
    """omlxctl with the fake daemon behind it."""
    async with serving(fake_daemon, down.home / "run" / "omlxd.sock"):
        yield down
