"""What README.md says of the file, the commands, the routes and the reload classes is so."""

from __future__ import annotations

import re
from pathlib import Path

import click

from omlxctl.cli import COMMANDS, cli
from omlxd.api.routes import route_table
from omlxd.api.stream import Pace, WallClock
from omlxd.spec.keys import keys
from omlxd.spec.parse import Source, read
from tests.fakes.fake_gateway import FakeGateway

README = Path(__file__).resolve().parents[2] / "README.md"


def _text() -> str:
    return README.read_text(encoding="utf-8")


def test_the_example_configuration_is_valid() -> None:
    """Every piece of an omlx.toml in README is one that omlxd takes."""
    examples = re.findall(r"^```toml\n(.*?)^```", _text(), re.DOTALL | re.MULTILINE)
    assert len(examples) == 2
    for example in examples:
        assert read(Source("README.md", example)).problems == ()


def test_the_reload_classes_are_those_of_the_schema() -> None:
    """Every key in README's table of reload classes has that class."""
    classes: dict[str, set[str]] = {}
    for key in keys():
        for part in key.path:  # `sampling` names a table: all its keys
            classes.setdefault(str(part), set()).add(key.reload)
    rows = re.findall(r"^\| (live|drain|rebind) \| (.*?) \|", _text(), re.MULTILINE)
    assert [name for name, _ in rows] == ["live", "drain", "rebind"]
    for reload, named in rows:
        for key_name in re.findall(r"`(\w+)`", named):
            assert classes[key_name] == {reload}, key_name


def test_the_routes_are_those_of_the_server() -> None:
    """README's table of routes and the server's are the same."""
    table = route_table(FakeGateway(), clock=WallClock(), pace=Pace())
    served = {f"{row.method} {row.path.replace(':path', '')}" for row in table}
    assert set(re.findall(r"`((?:GET|POST) /\S+)`", _text())) == served


def test_the_commands_exist() -> None:
    """Every `omlxctl` command and option in README exists."""
    lines = re.findall(r"omlxctl ([^`\n]+)", _text())
    named = set()
    for line in lines:
        usage = re.split(r"\s{2,}|\)", line)[0]
        words = re.findall(r"(?:^|[|/] )([a-z]+)", usage)
        named |= set(words)
        for word in words:
            command = cli.get_command(click.Context(cli), word)
            assert command is not None, f"omlxctl {word}"
        for option in re.findall(r"(?<!\S)\[?(-{1,2}[a-z]+)", usage):
            assert any(option in _options(word) for word in words), f"omlxctl {usage}"
    assert len(named) > len(COMMANDS) / 2


def _options(name: str) -> set[str]:
    """All options of a command and of its subcommands."""
    context = click.Context(cli)
    command = cli.get_command(context, name)
    assert command is not None
    found = {option for parameter in command.params for option in parameter.opts}
    if isinstance(command, click.Group):
        for below in command.commands.values():
            found |= {option for parameter in below.params for option in parameter.opts}
    return found
