"""The plist that launchd gets: its keys, their types, and what they follow."""

from __future__ import annotations

import plistlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlxctl.serviceplist import (
    Wanted,
    exit_timeout_of,
    missing_variables,
    render,
    stable_program,
    to_bytes,
)

WANTED = Wanted(Path("/x/bin/omlxd"), Path("/Users/you/.omlx"), ("127.0.0.1:8000",), 20.0)
# As launchd.plist(5) has them.
TYPES: dict[str, type] = {
    "Label": str,
    "ProgramArguments": list,
    "RunAtLoad": bool,
    "KeepAlive": dict,
    "ExitTimeOut": int,
    "ProcessType": str,
    "LimitLoadToSessionType": list,
    "SoftResourceLimits": dict,
    "Umask": int,
    "WorkingDirectory": str,
    "EnvironmentVariables": dict,
    "StandardErrorPath": str,
    "Sockets": dict,
}


def plist(**changes: Any) -> dict[str, Any]:
    """As launchd reads it."""
    fields = {name: getattr(WANTED, name) for name in WANTED.__slots__} | changes
    found: dict[str, Any] = plistlib.loads(to_bytes(render(Wanted(**fields))))
    return found


def test_every_key_has_its_documented_type() -> None:
    """All of them and no others; values inside are what the page asks for."""
    found = plist()
    assert {key: type(value) for key, value in found.items()} == TYPES
    assert all(isinstance(part, str) for part in found["ProgramArguments"])
    assert {type(v) for v in found["EnvironmentVariables"].values()} == {str}
    assert found["KeepAlive"] == {"SuccessfulExit": False}
    assert found["ProcessType"] in ("Background", "Standard", "Adaptive", "Interactive")
    assert found["SoftResourceLimits"] == {"NumberOfFiles": 8192}


def test_nothing_is_left_to_a_shell() -> None:
    """No path with a tilde or a variable, the program absolute, and no home outside the plist."""
    found = plist()
    assert found["ProgramArguments"] == ["/x/bin/omlxd", "--home", "/Users/you/.omlx"]
    assert found["EnvironmentVariables"]["PATH"].split(":")[0] == "/x/bin"
    assert found["StandardErrorPath"] == "/Users/you/.omlx/logs/stderr.log"
    assert not {"~", "$"} & set(to_bytes(found).decode())


def test_files_are_private() -> None:
    """Umask 077, which an integer gives in decimal."""
    assert plist()["Umask"] == 63 == 0o077


def test_it_loads_with_and_without_a_login_at_the_console() -> None:
    """gui/UID is Aqua, user/UID is Background."""
    assert plist()["LimitLoadToSessionType"] == ["Aqua", "Background"]


@pytest.mark.parametrize(("grace_s", "expected"), [(20.0, 30), (0.0, 10), (0.25, 11), (600.0, 610)])
def test_launchd_waits_longer_than_the_drain(grace_s: float, expected: int) -> None:
    """Never 0, which is for ever."""
    assert plist(shutdown_grace_s=grace_s)["ExitTimeOut"] == expected


def test_one_socket_entry_for_each_address() -> None:
    """A literal has its family; a name is left to launchd, which may make several of it."""
    found = plist(listen=("0.0.0.0:80", "[::1]:8001", "localhost:8002"))["Sockets"]
    assert found == {
        "http": [
            {
                "SockNodeName": "0.0.0.0",
                "SockServiceName": "80",
                "SockType": "stream",
                "SockFamily": "IPv4",
            },
            {
                "SockNodeName": "::1",
                "SockServiceName": "8001",
                "SockType": "stream",
                "SockFamily": "IPv6",
            },
            {"SockNodeName": "localhost", "SockServiceName": "8002", "SockType": "stream"},
        ]
    }


def test_the_same_wish_gives_the_same_bytes() -> None:
    """So that an unchanged plist is seen to be one."""
    assert to_bytes(render(WANTED)) == to_bytes(render(WANTED))


@pytest.mark.parametrize(
    ("data", "timeout_s"),
    [(to_bytes({"ExitTimeOut": 44}), 44), (to_bytes({}), 0), (b"", 0), (b"<plist>", 0)],
)
def test_the_timeout_of_a_plist_on_disk(data: bytes, timeout_s: int) -> None:
    """0 for whatever cannot be read."""
    assert exit_timeout_of(data) == timeout_s


@given(st.binary(), st.integers(0, 900), st.integers(0, 900))
def test_a_damaged_plist_has_no_timeout_or_its_own(piece: bytes, start: int, end: int) -> None:
    """Whatever stands in the file, reading it is no failure."""
    whole = to_bytes(render(WANTED))
    found = exit_timeout_of(whole[:start] + piece + whole[end:])
    assert isinstance(found, int)


def test_a_formulas_program_is_named_by_its_lasting_path() -> None:
    """The version in a Cellar path goes with the next upgrade."""
    cellar = Path("/opt/homebrew/Cellar/omlxd/0.1.0/bin/omlxd")
    assert stable_program(cellar) == Path("/opt/homebrew/opt/omlxd/bin/omlxd")
    assert stable_program(Path("/x/bin/omlxd")) == Path("/x/bin/omlxd")


def test_keys_from_variables_are_named() -> None:
    """launchd gives none of the shell's."""
    assert missing_variables(["a", "env:TEAM_KEY", "file:x"]) == ["TEAM_KEY"]
