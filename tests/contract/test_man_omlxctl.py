"""man/omlxctl.1: every command, option and exit code, no others, and it formats."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from omlxctl import exits
from omlxctl.cli import EPILOG, cli

PAGE = Path(__file__).parents[2] / "man" / "omlxctl.1"
SHARED = {"--home", "--socket", "--json", "--help"}  # of every command


def plain(text: str) -> str:
    """The text of roff source as a reader sees it."""
    for escape, meant in (("\\-", "-"), ("\\(dq", '"'), ("\\(ti", "~")):
        text = text.replace(escape, meant)
    return text


def entries() -> dict[str, dict[str, str]]:
    """Heading of a section → tag of each entry under it (its first word) → the rest of the tag."""
    found: dict[str, dict[str, str]] = {}
    heading, tagged = "", False
    for line in plain(PAGE.read_text()).split("\n"):
        if match := re.fullmatch(r'\.S[SH] "?([^"]*)"?', line):
            heading = match[1]
            found[heading] = {}
        elif tagged:
            _, word, *rest = line.split(" ", 2)
            found[heading][word] = " ".join(rest).strip('" ')
        tagged = line == ".TP"
    return found


def commands(group: click.Group = cli, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command with its path; a group is one where it does something by itself."""
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{path}{name} ")
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield f"{path}{name}", command


def heading(path: str, command: click.Command) -> str:
    """The path and the arguments, as the usage line has them."""
    ctx = click.Context(command)
    arguments = [p.make_metavar(ctx) for p in command.params if isinstance(p, click.Argument)]
    return " ".join([path, *arguments])


def options(command: click.Command) -> dict[str, str]:
    """Long name → what it takes, of options that are the command's own."""
    ctx = click.Context(command)
    found = {}
    for param in command.params:
        if isinstance(param, click.Option):
            name = next(opt for opt in param.opts if opt.startswith("--"))
            found[name] = "" if param.is_flag else param.make_metavar(ctx)
    return {name: takes for name, takes in found.items() if name not in SHARED}


COMMANDS = dict(commands())


def test_every_command_is_explained_and_no_other() -> None:
    """The page has one heading for each command, with its arguments, in lower case."""
    expected = {heading(path, command) for path, command in COMMANDS.items()}
    assert {name for name in entries() if not name[0].isupper()} == expected


@pytest.mark.parametrize("path", COMMANDS)
def test_every_option_is_explained_and_no_other(path: str) -> None:
    """Under a command stand its own options, with what they take."""
    assert entries()[heading(path, COMMANDS[path])] == options(COMMANDS[path])


def test_short_options_are_named() -> None:
    """A short form is named where the long one is explained."""
    text = plain(PAGE.read_text())
    for path, command in COMMANDS.items():
        shorts = {o for p in command.params for o in p.opts if re.fullmatch(r"-\w", o)}
        section = text[text.index(f".SS {heading(path, command)}\n") :]
        section = section[: section.index("\n.S", 1)]
        named = set(re.findall(r"Short:\n\.BR (-\w) \.", section))
        assert named == shorts, path


def test_shared_options_are_explained_once() -> None:
    """Options of every command, and --version of the program, stand under OPTIONS."""
    assert entries()["OPTIONS"].keys() == SHARED | {"--version"}
    for path, command in COMMANDS.items():
        names = {o for p in command.params for o in p.opts if isinstance(p, click.Option)}
        assert names >= SHARED - {"--help"}, path


def test_every_exit_code_is_explained_and_no_other() -> None:
    """EXIT STATUS has the numbers of omlxctl.exits; --help has all but 130."""
    codes = {
        value
        for name, value in vars(exits).items()
        if name.isupper() and isinstance(value, int) and not isinstance(value, bool)
    }
    assert {int(tag) for tag in entries()["EXIT STATUS"]} == codes
    assert {int(n) for n in re.findall(r"\b\d+\b", EPILOG)} == codes - {exits.INTERRUPTED}


@pytest.mark.skipif(shutil.which("man") is None, reason="there is no man on this machine")
def test_it_formats() -> None:
    """man renders the page without a warning, with all of its sections."""
    done = subprocess.run(
        ["man", "--warnings=all", "--local-file", str(PAGE)],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANPAGER": "cat", "MANWIDTH": "100"},
    )
    assert done.stderr == ""
    for section in (name for name in entries() if name.isupper()):
        assert f"\n{section}\n" in f"\n{done.stdout}"
