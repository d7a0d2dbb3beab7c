"""[mcp] of the files, put in force: the mcp.json, what is refused, and what a save changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from omlxd.daemon.config import ConfigStore
from omlxd.daemon.tool_servers import ToolService, tool_servers
from omlxd.mcp.types import ServerView

CONFIG = '[mcp]\nconfig = "mcp.json"\n'


class World:
    """A home with its files, read as the daemon reads them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.store = ConfigStore(home, home / "omlx.toml")
        self.service = ToolService(home)

    def save(self, text: str = CONFIG) -> None:
        (self.home / "omlx.toml").write_text(text)

    def save_json(self, servers: Any) -> None:
        (self.home / "mcp.json").write_text(json.dumps({"mcpServers": servers}))

    def follow(self) -> dict[str, ServerView]:
        if self.store.in_force is None:
            self.store.start()
        self.store.reload()
        assert self.store.in_force is not None
        self.service.want(self.store.in_force)
        return {view.name: view for view in self.service.pool.servers()}


@pytest.fixture
def world(tmp_path: Path) -> World:
    tmp_path.chmod(0o700)
    return World(tmp_path)


def test_servers_of_both_files_are_there(world: World) -> None:
    """Each names the file that asks for it; the mcp.json is watched."""
    world.save(f'{CONFIG}[mcp.servers.own]\ncommand = "x"\n')
    world.save_json({"lab": {"command": "y"}})
    found = world.follow()
    assert {name: view.source for name, view in found.items()} == {
        "lab": "mcp.json",
        "own": str(world.home / "omlx.toml"),
    }
    assert world.store.referenced == (world.home / "mcp.json",)
    assert [c.status for c in world.service.condition()] == ["True"]


def test_a_save_of_the_mcp_json_counts(world: World) -> None:
    """It is a change like any other, though no key of omlx.toml differs."""
    world.save()
    world.save_json({"lab": {"command": "y"}})
    world.follow()
    generation = world.store.generation
    world.save_json({"other": {"command": "y"}})
    assert list(world.follow()) == ["other"]
    assert world.store.generation == generation + 1


def test_nothing_is_picked_up_where_nobody_named_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An mcp.json in the home or in the working directory is only a file."""
    monkeypatch.chdir(world.home)
    world.save("")
    world.save_json({"lab": {"command": "y"}})
    (world.home / ".mcp.json").write_text((world.home / "mcp.json").read_text())
    assert world.follow() == {}
    assert world.service.condition() == ()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda path: path.write_text("{"), "is not valid JSON"),
        (lambda path: path.chmod(0o666), "others may write"),
        (lambda path: path.unlink(), "cannot read"),
    ],
)
def test_a_file_that_cannot_be_used_changes_nothing(world: World, spoil: Any, why: str) -> None:
    """Its servers stay, the rest of a save is in force, the condition says why."""
    world.save()
    world.save_json({"lab": {"command": "y"}})
    world.follow()
    spoil(world.home / "mcp.json")
    world.save(f'{CONFIG}[mcp.servers.own]\ncommand = "x"\n')
    assert sorted(world.follow()) == ["lab", "own"]
    (condition,) = world.service.condition()
    assert (condition.status, condition.reason) == ("False", "FileNotUsed")
    assert why in condition.message
    assert world.store.problems == ()


def test_a_file_that_others_may_write_is_never_read(world: World) -> None:
    """It decides which programs run."""
    world.save()
    world.save_json({"lab": {"command": "y"}})
    (world.home / "mcp.json").chmod(0o622)
    assert world.follow() == {}


def test_a_variable_that_is_missing_costs_its_server(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spec is in force, the server is off with the reason, a file's last newline is none."""
    monkeypatch.setenv("OMLXD_TEST_TOKEN", "t")
    (world.home / "key").write_text("k\n")
    world.save(
        '[mcp.servers.good]\ncommand = "x"\n'
        'env = { A = "env:OMLXD_TEST_TOKEN", B = "file:key" }\n'
        '[mcp.servers.bad]\nurl = "http://h"\nheaders = { A = "env:OMLXD_NOT_SET" }\n'
    )
    found = world.follow()
    assert (found["good"].state, found["bad"].state) == ("idle", "off")
    assert found["bad"].reason == "A: omlxd's environment has no OMLXD_NOT_SET"
    assert world.store.in_force is not None
    assert world.store.in_force.resolved.tools.values["file:key"] == ("k", "")
    (condition,) = world.service.condition()
    assert (condition.status, condition.reason) == ("False", "ServersOff")


def test_secrets_are_not_shown(world: World) -> None:
    """Neither the values in force nor what a save changed tell a literal of env or headers."""
    world.save('[mcp.servers.lab]\ncommand = "x"\nenv = { A = "hush" }\n')
    world.follow()
    assert "hush" not in str(world.store.values_in_force())
    world.save('[mcp.servers.lab]\ncommand = "x"\nenv = { A = "hush2" }\n')
    outcome = world.store.reload()
    assert [change.key for change in outcome.changes] == ["mcp.servers.lab.env.A"]
    assert "hush" not in str(outcome.changes)


def test_the_condition_names_the_tools_that_may_be_used() -> None:
    """A server without an allow-list is told with all of its tools."""

    def view(name: str, **facts: Any) -> ServerView:
        return ServerView(name=name, via="stdio", source="", **{"state": "ready", **facts})

    views = (
        view("all", tools=("all__x", "all__y")),
        view("some", tools=("some__x",), allow_all=False),
        view("later", state="idle"),
    )
    (condition,) = tool_servers(views, "")
    assert condition.message == (
        "all (all: all__x, all__y); some (some__x); later (any tool, not started yet)"
    )
