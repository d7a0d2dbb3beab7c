"""The log on a real disk: full, gone, moved away and rotated."""

from __future__ import annotations

import gc
import json
import logging
import os
import re
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from omlxd.observe import log

MIB = 1024**2


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "logs" / "server.log"
    log.close()


@pytest.fixture
def open_log(path: Path) -> Callable[..., Path]:
    def open_it(level: str = "info", *, max_size: int = MIB, keep: int = 2, **more: Any) -> Path:
        log.configure(path, level, max_size=max_size, keep=keep, **more)
        return path

    return open_it


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# ------------------------------------------------------------------ the line


def test_a_line_is_time_level_type_then_fields(open_log: Callable[..., Path]) -> None:
    """The contract that jq relies on: order, names, RFC 3339 in UTC with milliseconds."""
    path = open_log()
    log.get().warning("model_load", model="Qwen é", duration_s=1.5, cache={"ram": 1}, reason=None)
    (line,) = path.read_text().splitlines()
    record = json.loads(line)
    assert list(record) == ["time", "level", "type", "model", "duration_s", "cache", "reason"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", record["time"])
    assert (record["level"], record["type"]) == ("warning", "model_load")
    assert record["cache"] == {"ram": 1}
    assert "é" in line


def test_a_field_cannot_take_the_place_of_the_head(open_log: Callable[..., Path]) -> None:
    """A field named like a part of the contract does not break it."""
    path = open_log()
    log.get().info("condition", type="Ready", level="x")
    assert records(path)[0]["type"] == "condition"
    assert records(path)[0]["level"] == "info"


def test_secrets_are_blanked_at_any_depth(open_log: Callable[..., Path]) -> None:
    """No value under a secret's name reaches the file, however it is spelled or nested."""
    path = open_log()
    log.get().info(
        "audit",
        api_key="sk-1",
        Authorization="Bearer sk-2",
        headers={"X-API-Key": "sk-3", "accept": "*/*"},
        values=[{"server.api_keys": ["sk-4"]}, ({"admin_keys": ["sk-5"]},)],
    )
    text = path.read_text()
    assert "sk-" not in text
    assert records(path)[0]["headers"] == {"X-API-Key": "[redacted]", "accept": "*/*"}


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no text for you")

    __repr__ = __str__


def test_no_value_makes_logging_raise(open_log: Callable[..., Path]) -> None:
    """Cycles, NaN, half characters and objects without a text all give a line of valid JSON."""
    path = open_log(console=True)
    cycle: dict[str, Any] = {}
    cycle["me"] = cycle
    nan = float("nan")
    for value in (Hostile(), nan, [nan], "\ud800", Path("/x"), {1, 2}, b"\xff"):
        log.get().info("odd", value=value)
    found = records(path)
    assert [record["type"] for record in found] == ["odd"] * 7
    assert "no text for you" in found[0]["log_problem"]
    assert found[4]["value"] == "/x"


def test_exceptions_carry_their_traceback(open_log: Callable[..., Path]) -> None:
    """`exception` inside a handler logs where it was raised."""
    path = open_log()
    try:
        raise ValueError("that is why")
    except ValueError:
        log.get().exception("oops")
    (record,) = records(path)
    assert record["level"] == "error"
    assert "test_logs.py" in record["exception"]
    assert record["exception"].endswith("ValueError: that is why")


# ------------------------------------------------------------------ where it goes


def test_before_configure_lines_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """What happens before there is a file is not lost, and is JSON already."""
    log.get().info("early", step=1)
    assert json.loads(capsys.readouterr().err)["step"] == 1


def test_the_console_gets_a_short_form(
    open_log: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """In a terminal one line says it all, and without one nothing is echoed."""
    open_log(console=True)
    log.get().info("listen", address="127.0.0.1:8000")
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d info    listen address=127\.0\.0\.1:8000\n", capsys.readouterr().err
    )
    open_log(console=False)
    log.get().info("listen", address="127.0.0.1:8000")
    assert capsys.readouterr().err == ""


def test_the_level_changes_for_loggers_already_handed_out(open_log: Callable[..., Path]) -> None:
    """A logger bound long ago follows `set_level`."""
    path = open_log("warning")
    bound = log.get().bind(model="m")
    bound.info("one")
    log.set_level("debug")
    bound.debug("two")
    log.set_level("error")
    bound.warning("three")
    assert [record["type"] for record in records(path)] == ["two"]


def test_the_standard_library_logs_into_the_same_file(open_log: Callable[..., Path]) -> None:
    """What uvicorn and asyncio say is a record of type `log`, with its traceback."""
    path = open_log("debug")
    logging.getLogger("uvicorn.error").warning("started on %s", "8000")
    logging.getLogger("watchdog").debug("an event of the log file itself")
    try:
        raise OSError("broken")
    except OSError:
        logging.getLogger("asyncio").exception("callback failed")
    first, second = records(path)
    assert (first["type"], first["level"], first["logger"]) == ("log", "warning", "uvicorn.error")
    assert first["message"] == "started on 8000"
    assert second["exception"].endswith("OSError: broken")
    log.close()
    assert not any("omlxd" in type(h).__module__ for h in logging.getLogger().handlers)


def test_only_the_user_may_read_it(open_log: Callable[..., Path]) -> None:
    """The folder is 0700 and the file 0600, also after a rotation."""
    path = open_log(max_size=200)
    for _ in range(5):
        log.get().info("line", filler="x" * 100)
    modes = {stat.S_IMODE(p.stat().st_mode) for p in path.parent.iterdir()}
    assert modes == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


# ------------------------------------------------------------------ rotation


def test_rotation_by_size_and_count(open_log: Callable[..., Path]) -> None:
    """Newest lines are in the file, older ones in .1 and .2, and nothing beyond is kept."""
    path = open_log(max_size=1000, keep=2)
    for number in range(50):
        log.get().info("line", number=number, filler="x" * 200)
    assert sorted(p.name for p in path.parent.iterdir()) == [
        "server.log",
        "server.log.1",
        "server.log.2",
    ]
    numbers = [
        record["number"]
        for name in ("server.log.2", "server.log.1", "server.log")
        for record in records(path.with_name(name))
    ]
    assert numbers == list(range(50 - len(numbers), 50))
    assert all(p.stat().st_size <= 1000 for p in path.parent.iterdir())


def test_fewer_rotated_files_take_effect(open_log: Callable[..., Path]) -> None:
    """A lower count removes what is beyond it at the next rotation; none keeps none."""
    path = open_log(max_size=300, keep=4)

    def fill() -> set[str]:
        for _ in range(8):
            log.get().info("line", filler="x" * 200)
        return {p.name for p in path.parent.iterdir()}

    assert fill() == {"server.log", *(f"server.log.{n}" for n in (1, 2, 3, 4))}
    open_log(max_size=300, keep=1)
    assert fill() == {"server.log", "server.log.1"}
    open_log(max_size=300, keep=0)
    assert fill() == {"server.log"}
    assert len(records(path)) == 1


def test_a_line_longer_than_the_limit_is_written(open_log: Callable[..., Path]) -> None:
    """A limit smaller than one line does not lose the line."""
    path = open_log(max_size=10)
    log.get().info("long", filler="x" * 100)
    assert records(path)[0]["type"] == "long"


def test_threads_do_not_tear_lines(open_log: Callable[..., Path]) -> None:
    """Lines of several threads across rotations are whole, and none is missing."""
    path = open_log(max_size=20_000, keep=100)

    def write(thread: int) -> None:
        for number in range(200):
            log.get().info("line", key=[thread, number], filler="x" * (number % 50))

    threads = [threading.Thread(target=write, args=(thread,)) for thread in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    keys = {tuple(record["key"]) for p in path.parent.iterdir() for record in records(p)}
    assert keys == {(thread, number) for thread in range(5) for number in range(200)}


# ------------------------------------------------------------------ trouble


def test_reopen_follows_a_moved_file(open_log: Callable[..., Path]) -> None:
    """After someone moved the file away and said so, lines go to a new one."""
    path = open_log()
    log.get().info("one")
    path.rename(path.with_name("moved"))
    log.get().info("two")
    log.reopen()
    log.get().info("three")
    assert [record["type"] for record in records(path.with_name("moved"))] == ["one", "two"]
    assert [record["type"] for record in records(path)] == ["three"]


def test_a_removed_folder_is_made_again(open_log: Callable[..., Path]) -> None:
    """Removing the logs of a running daemon loses what was in them and nothing else."""
    path = open_log()
    log.get().info("one")
    path.unlink()
    path.parent.rmdir()
    log.get().info("two")
    assert [record["type"] for record in records(path)] == ["two"]


def test_lines_that_cannot_be_written_are_counted_and_said_once(
    open_log: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Trouble is one sentence on stderr; afterwards the log says how much is missing."""
    path = open_log()
    path.parent.parent.mkdir(exist_ok=True)
    path.parent.write_text("a file where the folder should be")
    for _ in range(3):
        log.get().info("lost")
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert f"cannot log to {path}" in said[0]
    path.parent.unlink()
    log.get().info("back")
    log.get().info("more")
    assert [(r["type"], r.get("lines")) for r in records(path)] == [
        ("back", None),
        ("log_lines_lost", 3),
        ("more", None),
    ]


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from omlxd.observe import log
path = Path(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then write() fails instead
log.configure(path, "info", max_size=10**9, keep=1)
log.get().info("first", filler="x" * 100)
unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 50, unlimited[1]))
for _ in range(3):
    log.get().info("lost", filler="x" * 100)
resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
log.get().info("back")
"""


def test_a_full_disk_tears_no_later_line(path: Path) -> None:
    """Half a line that a full disk took is ended before the next one, and the loss is told."""
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path)], check=True, capture_output=True, text=True
    )
    assert done.stderr.count("cannot log to") == 1
    good, bad = [], 0
    for line in path.read_text().splitlines():
        try:
            good.append(json.loads(line)["type"])
        except ValueError:
            bad += 1
    assert good == ["first", "back", "log_lines_lost"]
    assert bad == 1


class LogsWhenCollected:
    def __init__(self) -> None:
        self.me = self  # a cycle: only the collector ends it

    def __del__(self) -> None:
        log.get().info("from_destructor")


def test_a_destructor_may_log_inside_a_write(
    open_log: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection in the middle of a write, whose destructors log, does not lock up."""
    path = open_log()
    real_write = os.write

    def collecting_write(fd: int, data: bytes) -> int:
        gc.collect()
        return real_write(fd, data)

    gc.disable()  # or it is collected before the write
    try:
        LogsWhenCollected()
        monkeypatch.setattr(os, "write", collecting_write)
        log.get().info("line")
    finally:
        gc.enable()
    assert {record["type"] for record in records(path)} == {"from_destructor", "line"}


def test_a_closed_terminal_does_not_disturb(path: Path) -> None:
    """A terminal that went away costs the echo, not the log."""
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom omlxd.observe import log\n"
        "log.configure(Path(sys.argv[1]), 'info', max_size=10**6, keep=1, console=True)\n"
        "reader, writer = os.pipe()\nos.close(reader)\nos.dup2(writer, 2)\n"
        "log.get().info('one')\nlog.get().info('two')\nos._exit(0)"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=True)
    assert [record["type"] for record in records(path)] == ["one", "two"]


def test_importing_the_daemons_shells_is_light() -> None:
    """Neither MLX nor what only a scrape or a worker needs is loaded with them."""
    modules = [
        "omlxd.ipc.channel",
        "omlxd.daemon.supervisor",
        "omlxd.daemon.memory",
        "omlxd.daemon.lock",
        "omlxd.observe.log",
        "omlxd.observe.events",
        "omlxd.observe.metrics",
    ]
    heavy = {"mlx", "mlx_lm", "mlx_vlm", "transformers", "numpy", "prometheus_client", "pydantic"}
    program = (
        f"import psutil, sys, {', '.join(modules)}\n"
        f"print(sorted({heavy} & set(sys.modules)))\n"
        "print(psutil.Process().memory_info().rss)"
    )
    out = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    assert out[0] == "[]"
    assert int(out[1]) < 60 * MIB
