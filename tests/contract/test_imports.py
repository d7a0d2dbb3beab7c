"""What commands import: a command that is typed often must not wait for what it does not use."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {
    *("asyncio", "mlx", "pydantic", "rich", "starlette", "tomli_w", "transformers"),
    *("uvicorn", "watchdog"),
}
# Third-party packages that the fast commands may load (msgspec loads typing_extensions), and ours.
ALLOWED = {"click", "msgspec", "omlxctl", "omlxd", "typing_extensions"}
FAST = ("status", "models", "pin", "load", "set", "wait", "events", "requests")
OURS_FOR_STATUS = {
    "omlxctl",
    "omlxctl.cli",
    "omlxctl.client",
    "omlxctl.commands",
    "omlxctl.commands.status",
    "omlxctl.exits",
    "omlxctl.groups",
    "omlxctl.names",
    "omlxctl.options",
    "omlxctl.render",
    "omlxctl.statusview",
    "omlxctl.target",
    "omlxctl.text",
    "omlxd",
    "omlxd.control",
    "omlxd.control.wire",
    "omlxd.spec",
    "omlxd.spec.report",
    "omlxd.units",
}


def modules(*args: str) -> set[str]:
    """All modules loaded when `omlxctl *args` has run; no daemon answers it."""
    code = (
        "import json, sys; before = set(sys.modules); from omlxctl.__main__ import run; "
        f"run({[*args]!r}); print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={"OMLX_HOME": "/nonexistent"},
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("command", FAST)
def test_fast_commands_import_little(command: str) -> None:
    """Of third-party packages only click and msgspec, and nothing heavy of the standard library."""
    arguments = {"pin": ["M"], "load": ["M"], "set": ["M", "ttl=5m"], "wait": ["--timeout", "0s"]}
    loaded = {name.partition(".")[0] for name in modules(command, *arguments.get(command, []))}
    assert loaded & HEAVY == set()
    third_party = loaded - set(sys.stdlib_module_names)
    assert third_party <= ALLOWED


def test_status_imports_exactly_its_own_modules() -> None:
    """A new import on the way of `omlxctl status` has to be put here on purpose."""
    loaded = modules("status")
    ours = {name for name in loaded if name.partition(".")[0] in ("omlxctl", "omlxd")}
    assert ours - {"omlxctl.__main__"} == OURS_FOR_STATUS


def test_validate_needs_no_server() -> None:
    """Checking a file loads the spec, but neither HTTP server nor MLX."""
    loaded = {name.partition(".")[0] for name in modules("validate", "/nonexistent/omlx.toml")}
    assert "pydantic" in loaded
    assert loaded & {"starlette", "uvicorn", "mlx", "rich", "asyncio", "watchdog"} == set()
