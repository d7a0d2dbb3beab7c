"""Sockets taken over from launchd, through a library that exports the C symbol of macOS."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omlxd.daemon.launchd import activate
from tests.support.launchd import build_library

ROOT = Path(__file__).resolve().parents[2]
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="a library is preloaded")
Run = Callable[..., subprocess.CompletedProcess[str]]
PROGRAM = """
import ctypes, os, subprocess, sys
from omlxd.daemon.launchd import ActivationFailed, activate
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("launchd"))


@pytest.fixture
def run(library: Path) -> Run:
    """A Python program as launchd would start it, with these sockets under these names."""

    def start(program: str, **named: list[socket.socket]) -> subprocess.CompletedProcess[str]:
        numbers = {name: [sock.fileno() for sock in socks] for name, socks in named.items()}
        handed = ";".join(f"{name}={','.join(map(str, found))}" for name, found in numbers.items())
        environment = {"LD_PRELOAD": str(library), "PYTHONPATH": str(ROOT)}
        if named:
            environment["LAUNCHD_SOCKETS"] = handed
        return subprocess.run(
            [sys.executable, "-c", PROGRAM + program],
            env=environment,
            pass_fds=[number for found in numbers.values() for number in found],
            capture_output=True,
            text=True,
            check=True,
        )

    return start


@pytest.fixture
def pair() -> Iterator[list[socket.socket]]:
    with (
        socket.create_server(("127.0.0.1", 0)) as first,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as second,
    ):
        yield [first, second]


def test_a_system_without_the_symbol_has_no_launchd() -> None:
    """None, so the daemon binds by itself."""
    if sys.platform != "darwin":
        assert activate("http") is None


@linux_only
def test_a_process_that_launchd_did_not_start(run: Run) -> None:
    """ESRCH is None as well."""
    assert run("print(activate('http'))").stdout == "None\n"


@linux_only
def test_a_plist_without_the_name(run: Run, pair: list[socket.socket]) -> None:
    """ENOENT is no socket, but it is launchd that started us."""
    assert run("print(activate('http'))", other=pair).stdout == "[]\n"


@linux_only
def test_every_socket_of_the_name_is_taken_over(run: Run, pair: list[socket.socket]) -> None:
    """Several descriptors, ready for a loop, and the array is given back to the C library."""
    program = """
socks = activate("http")
print([s.getsockname()[:2] for s in socks], [s.gettimeout() for s in socks])
print(ctypes.CDLL(None).array_given_back())
"""
    names = [sock.getsockname()[:2] for sock in pair]
    assert run(program, http=pair, other=[]).stdout == f"{names} [0.0, 0.0]\n1\n"


@linux_only
def test_children_do_not_inherit_them(run: Run, pair: list[socket.socket]) -> None:
    """A worker that outlives the daemon must not keep the port."""
    program = """
socks = activate("http")
numbers = [s.fileno() for s in socks]
check = "import os, sys; print([os.path.exists(f'/proc/self/fd/{n}') for n in sys.argv[1:]])"
subprocess.run([sys.executable, "-c", check, *map(str, numbers)], close_fds=False, check=True)
"""
    assert run(program, http=pair).stdout == "[False, False]\n"


@linux_only
def test_sockets_that_were_taken_already_are_a_failure(run: Run, pair: list[socket.socket]) -> None:
    """Any other code says what happened and what to do."""
    program = """
activate("http")
try:
    activate("http")
except ActivationFailed as error:
    print(error)
"""
    said = run(program, http=pair).stdout
    assert said == (
        f"launchd does not hand over the sockets 'http': {os.strerror(114)}; "
        "reinstall the service with: omlxctl service install\n"
    )
