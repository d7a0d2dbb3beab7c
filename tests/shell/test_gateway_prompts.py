"""Message text in the log: only when it is asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omlxd.api.ports import ServerSettings
from omlxd.daemon.gateway import RequestGateway
from omlxd.mcp.pool import ToolPool
from omlxd.observe import log
from omlxd.observe.metrics import Metrics
from tests.shell.test_gateway import Desk
from tests.support.engines import request


@pytest.mark.parametrize("asked", [True, False])
async def test_prompts_are_logged_only_when_asked_for(tmp_path: Path, asked: bool) -> None:
    """With `logging.prompts` there is one line with a request's text, without it there is none."""
    desk = Desk()
    desk.settings = ServerSettings(log_prompts=asked)
    gateway = RequestGateway(desk, Metrics(), tools=ToolPool(Path("/")))
    path = tmp_path / "server.log"
    log.configure(path, "info", max_size=1 << 20, keep=1)
    try:
        async with gateway.generate(request(prompt="a secret")):
            pass
    finally:
        log.close()
    lines = path.read_text().splitlines() if path.exists() else []
    found = [line for line in map(json.loads, lines) if line["type"] == "prompt"]
    assert [line["prompt"] for line in found] == (["a secret"] if asked else [])
    assert ("a secret" in "".join(lines)) is asked
