"""From argv to a daemon: the home it makes and what it says on a terminal."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

from omlxd import __version__
from omlxd.daemon.main import greeting, make_home
from tests.support.control_socket import short_home
from tests.support.daemon import config, free_port


def test_a_new_home_is_whole_and_private(tmp_path: Path) -> None:
    """Every folder that omlxd looks into by default is there, the one for models too."""
    home = tmp_path / "home"
    make_home(home)
    make_home(home)
    assert sorted(one.name for one in home.iterdir()) == [
        "logs",
        "models",
        "omlx.d",
        "run",
        "state",
    ]
    assert {one.stat().st_mode & 0o777 for one in (home, *home.iterdir())} == {0o700}


def test_the_greeting_without_an_address() -> None:
    """Says where to look for the reason."""
    assert "no address yet (omlxctl status says why)" in greeting(Path("/h"), [])


def test_a_person_at_a_terminal_is_told_that_it_is_up() -> None:
    """Version, home, addresses and the way out, in one line; Ctrl-C then ends it with 0."""
    port = free_port()
    with short_home() as home:
        (home / "omlx.toml").write_text(config(home / "models", port=port))
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "omlxd", "--home", str(home)]
        with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
            os.close(theirs)
            try:
                with os.fdopen(ours, "rb", closefd=True) as terminal:
                    lines = (line.decode().strip() for line in terminal)
                    line = next(line for line in lines if "Ctrl-C" in line)
                    process.send_signal(signal.SIGINT)
                    assert process.wait(15) == 0
            finally:
                process.kill()
    where = f"listening on 127.0.0.1:{port}"
    assert line == f"omlxd {__version__} serves {home}, {where}; Ctrl-C stops it"
