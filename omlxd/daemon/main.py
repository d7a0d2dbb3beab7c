"""argv → a running daemon → an exit code.

Exit codes: 0 asked to stop · 1 failed start · 2 usage · 4 another instance holds the home.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from omlxd import __version__
from omlxd.daemon.launchd import HTTP, ActivationFailed, activate
from omlxd.daemon.lock import AlreadyRunning, Lock, acquire, wait_for

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_RUNNING = 0, 1, 2, 4
MAX_SOCKET_PATH = 103  # bytes; macOS allows 104 with the NUL, Linux 108


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="omlxd", description="Serve the models that omlx.toml declares, in the foreground."
    )
    parser.add_argument("--config", metavar="FILE", help="omlx.toml to follow (HOME/omlx.toml)")
    parser.add_argument(
        "--home", metavar="DIR", help="state, logs, sockets ($OMLX_HOME or ~/.omlx)"
    )
    parser.add_argument("--check", action="store_true", help="check the configuration and exit")
    parser.add_argument("--version", action="version", version=f"omlxd {__version__}")
    return parser.parse_args(argv)


def home_of(args: argparse.Namespace) -> Path:
    """The home folder, absolute: --home, else OMLX_HOME, else ~/.omlx."""
    chosen = args.home or os.environ.get("OMLX_HOME") or "~/.omlx"
    return Path(chosen).expanduser().absolute()


def make_home(home: Path) -> None:
    """Create what is missing, private to the user."""
    for name in ("", "run", "logs", "state", "omlx.d", "models"):
        (home / name).mkdir(mode=0o700, parents=True, exist_ok=True)


def check(home: Path, config: Path) -> int:
    """Print every problem of the configuration; 0 if there is none."""
    from omlxd.daemon.config import read_files

    problems = read_files(home, config)
    for p in problems:
        hint = f" ({p.hint})" if p.hint else ""
        print(f"{p.file}:{p.line}:{p.column}: {p.key}: {p.message}{hint}", file=sys.stderr)  # noqa: T201
    if not problems:
        found = "ok" if config.exists() else "there is no such file, the defaults hold"
        print(f"{config}: {found}")  # noqa: T201
    return EXIT_FAILED if problems else EXIT_OK


def fail(message: str, code: int) -> int:
    print(f"omlxd: {message}", file=sys.stderr)  # noqa: T201
    return code


def run(argv: Sequence[str]) -> int:
    args = parse(argv)
    home = home_of(args)
    config = Path(args.config).expanduser().absolute() if args.config else home / "omlx.toml"
    if args.check:
        return check(home, config)
    control = home / "run" / "omlxd.sock"
    if (length := len(os.fsencode(control))) > MAX_SOCKET_PATH:
        return fail(
            f"the control socket's path {control} has {length} bytes, a Unix socket allows "
            f"{MAX_SOCKET_PATH}: choose a shorter --home",
            EXIT_FAILED,
        )
    try:
        socks = activate(HTTP)
        make_home(home)
        lock = acquire(home) if socks is None else wait_for_home(home)
    except ActivationFailed as error:
        return fail(str(error), EXIT_FAILED)
    except AlreadyRunning as running:
        return fail(
            f"another omlxd (pid {running.pid}) serves {home}: stop it, or choose another --home",
            EXIT_RUNNING,
        )
    except OSError as error:
        return fail(f"cannot use the home {home}: {error}", EXIT_FAILED)
    try:
        return serve(home, config, socks or [])
    finally:
        lock.release()


def wait_for_home(home: Path) -> Lock:
    """Under launchd, which would start a refused daemon every ten seconds; SIGTERM ends it with 0.

    Raises OSError.
    """
    try:
        return acquire(home)
    except AlreadyRunning as running:
        whose = "of another process" if running.pid is None else f"of process {running.pid}"

    def stopped(number: int, frame: FrameType | None) -> NoReturn:
        sys.exit(EXIT_OK)

    before = {number: signal.signal(number, stopped) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        print(f"omlxd: waits for the end {whose}, which serves {home}", file=sys.stderr)  # noqa: T201
        return wait_for(home)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def greeting(home: Path, addresses: Sequence[str]) -> str:
    """What a person at a terminal reads once it is up."""
    where = ", ".join(addresses) or "no address yet (omlxctl status says why)"
    return f"omlxd {__version__} serves {home}, listening on {where}; Ctrl-C stops it"


def serve(home: Path, config: Path, socks: Sequence[socket.socket] = ()) -> int:
    """Run the daemon until it is asked to stop; `socks`: those that launchd holds."""
    import uvloop

    from omlxd.daemon.daemon import Daemon
    from omlxd.daemon.held import HeldSockets
    from omlxd.observe import log

    console = sys.stderr.isatty()
    path = home / "logs" / "server.log"
    log.configure(
        path, "info", max_size=50 * 2**20, keep=5, console=console
    )  # until the spec is read

    async def body() -> int:
        daemon = Daemon(home, config, held=HeldSockets(socks))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, daemon.ask_stop)
        loop.add_signal_handler(signal.SIGHUP, daemon.ask_reload)
        loop.add_signal_handler(signal.SIGUSR1, log.reopen)

        async def greet() -> None:
            await daemon.listeners.brought.wait()
            print(greeting(home, daemon.listeners.addresses), file=sys.stderr)  # noqa: T201

        greeter = loop.create_task(greet(), name="greeting") if console else None
        try:
            return await daemon.run()
        finally:
            if greeter is not None:
                greeter.cancel()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(body())
