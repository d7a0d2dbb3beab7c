"""Tool servers of a real daemon: started at their first use, changed by a save, gone at its end."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psutil
import pytest

from tests.conftest import MakeScripted
from tests.support.daemon import TIMEOUT_S, Daemon, config, free_port

pytestmark = pytest.mark.e2e

SCRIPTS = {
    "A": ['<tool_call>\n{"name": "lab__add", ', '"arguments": {"a": 1, "b": 2}}\n</tool_call>'],
    "3": ["It is three."],  # so the result ends
}
PROGRAM = Path(__file__).parents[1] / "support" / "tool_server.py"


def server(name: str, *, tools: list[str] | None = None) -> str:
    allowed = "" if tools is None else f"tools = {json.dumps(tools)}\n"
    args = json.dumps([str(PROGRAM)])
    return f'[mcp.servers.{name}]\ncommand = "{sys.executable}"\nargs = {args}\n{allowed}'


def execute(url: str, name: str, **arguments: Any) -> httpx.Response:
    body = {"tool_name": name, "arguments": arguments}
    return httpx.post(f"{url}/v1/mcp/execute", json=body, timeout=TIMEOUT_S)


def views(url: str) -> dict[str, dict[str, Any]]:
    found = httpx.get(f"{url}/v1/mcp/servers").json()["servers"]
    return {view["name"]: view for view in found}


def test_the_life_of_tool_servers(home: Path, tmp_path: Path) -> None:
    """Lazy start, a save that touches one of two, a broken save, and no process left behind."""
    port = free_port()

    def text(*servers: str) -> str:
        return config(tmp_path, port=port, body="\n".join(servers))

    with Daemon(home, text(server("one"), server("two"))) as daemon:
        url = daemon.until_listening()
        assert [view["state"] for view in views(url).values()] == ["idle", "idle"]
        assert execute(url, "one__add", a=1, b=2).json()["content"] == "3"
        assert execute(url, "two__where").json()["content"].startswith(str(home))
        pids = {name: view["pid"] for name, view in views(url).items()}

        daemon.save(text(server("one", tools=["add"]), server("two")))
        daemon.until_generation(2)
        refused = execute(url, "one__where")
        assert (refused.status_code, "allow-list" in refused.text) == (403, True)
        after = views(url)
        assert after["two"]["pid"] == pids["two"]
        assert after["one"]["pid"] != pids["one"]

        daemon.save(text("[mcp.servers.one]\n"))
        daemon.until(lambda status: bool(status["config"]["problems"]), "problems")
        assert execute(url, "two__add", a=2, b=2).json()["content"] == "4"
        assert daemon.control("GET", "/v1/status")[0] == 200
        last = [view["pid"] for view in views(url).values()]
        assert daemon.stop() == 0
    assert not any(psutil.pid_exists(pid) for pid in [*pids.values(), *last] if pid)
    calls = daemon.log("mcp_call")
    assert [call["outcome"] for call in calls] == ["ok", "ok", "forbidden", "ok"]
    assert not any("arguments" in call for call in calls)


@pytest.mark.mlx
@pytest.mark.parametrize("stream", [False, True])
def test_a_model_uses_a_tool(home: Path, scripted_model: MakeScripted, stream: bool) -> None:
    """A real worker calls a real server's tool and answers from its result, in every dialect."""
    body = f'[defaults]\nmcp = ["lab"]\n{server("lab", tools=["add"])}'
    with Daemon(home, config(scripted_model(SCRIPTS).parent, body=body)) as daemon:
        daemon.until(lambda status: len(status["models"]) == 1, "the model discovered")
        url = daemon.until_listening()
        asked = {"model": "scripted", "stream": stream, "max_tokens": 50}
        conversation = {"messages": [{"role": "user", "content": "add A"}]}
        for path, body_ in (
            ("/v1/chat/completions", conversation),
            ("/v1/messages", conversation),
            ("/v1/responses", {"input": "add A"}),
        ):
            answer = httpx.post(f"{url}{path}", json={**asked, **body_}, timeout=TIMEOUT_S)
            text = answer.text
            assert answer.status_code == 200, text
            assert "lab__add gave 1 byte]" in text
            assert "It is three." in text
            assert "tool_use" not in text
            assert '"function_call"' not in text
            assert '"tool_calls"' not in text
        assert [call["outcome"] for call in daemon.log("mcp_call")] == ["ok"] * 3
        assert {r["finish_reason"] for r in daemon.log("request")} == {"stop"}


def test_a_server_that_is_off_is_a_condition(home: Path, tmp_path: Path) -> None:
    """Status says which server cannot be used, and why; everything else goes on."""
    body = '[mcp.servers.lab]\ncommand = "no-such-program"\n'
    with Daemon(home, config(tmp_path, body=body)) as daemon:
        url = daemon.until_listening()
        assert execute(url, "lab__x").status_code == 503

        def is_told(status: dict[str, Any]) -> bool:
            found = {c["type"]: c for c in status["conditions"]}.get("ToolServers", {})
            return "no-such-program is not a program on PATH" in found.get("message", "")

        daemon.until(is_told, "the condition")
        assert httpx.get(f"{url}/v1/models").status_code == 200
