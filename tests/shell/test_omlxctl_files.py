"""omlxctl and the files of the home: configuration and logs."""

# ruff: noqa: ASYNC240 (small files in a temporary folder, and nothing else on the loop)

from __future__ import annotations

import asyncio
import json
import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from omlxctl.commands.logs import BEFORE_FOLLOWING
from omlxd.control.wire import ConfigStatus
from tests.fakes.fake_control import FakeControl, invalid
from tests.support.ctl import Ctl, Done

GOOD = '[defaults]\nttl = "5m"\n'
BAD = '[defaults]\ntll = "5m"\n'


@pytest.fixture
def config(ctl_home: Path) -> Path:
    path = ctl_home / "omlx.toml"
    path.write_text(GOOD)
    return path


# ------------------------------------------------------------------ validate


async def test_a_valid_file_is_exit_0(down: Ctl, config: Path) -> None:
    """validate works with the daemon down and checks the home's omlx.toml by default."""
    assert await down("validate") == Done(0, f"{config}: valid\n", "")


async def test_a_problem_is_shown_at_its_place(down: Ctl, config: Path) -> None:
    """A wrong key is exit 7 with file:line:column, a caret and a hint."""
    config.write_text(BAD)
    assert await down("validate", str(config)) == Done(
        7,
        f'{config}:2:1: unknown key "tll"\n    tll = "5m"\n    ^\n    did you mean "ttl"?\n',
        "",
    )


async def test_validate_as_json_is_the_config_of_status(down: Ctl, config: Path) -> None:
    """validate --json has path, valid and problems, as status has them."""
    config.write_text(BAD)
    done = await down("validate", "--json")
    answer = json.loads(done.out)
    assert (done.code, answer["path"], answer["valid"]) == (7, str(config), False)
    assert (answer["problems"][0]["line"], answer["problems"][0]["column"]) == (2, 1)


async def test_standard_input_is_checked_with_the_drop_ins(down: Ctl, config: Path) -> None:
    """validate - takes the text in place of omlx.toml; a broken drop-in beside it counts."""
    assert (await down("validate", "-", stdin=GOOD)).code == 0
    (config.parent / "omlx.d").mkdir()
    drop_in = config.parent / "omlx.d" / "50-mine.toml"
    drop_in.write_text(BAD)
    done = await down("validate", "-", stdin=GOOD)
    assert (done.code, done.out.splitlines()[0]) == (7, f'{drop_in}:2:1: unknown key "tll"')


async def test_a_file_that_is_not_there_is_exit_4(down: Ctl) -> None:
    """validate of nothing says which file is missing."""
    done = await down("validate", "/nowhere/omlx.toml")
    assert (done.code, done.out) == (4, "")
    assert "there is no /nowhere/omlx.toml" in done.err


async def test_no_file_at_all_means_the_defaults(down: Ctl) -> None:
    """validate without FILE and without an omlx.toml is exit 4, and says that omlxd runs so."""
    done = await down("validate")
    assert done == Done(
        4,
        "",
        f"omlxctl: there is no {down.home}/omlx.toml\n"
        "  omlxd runs with its defaults, and with omlx.d, until there is one\n",
    )


async def test_the_schema_is_json(down: Ctl) -> None:
    """config schema prints a JSON Schema that knows the tables of omlx.toml."""
    done = await down("config", "schema")
    assert {"server", "models", "memory"} <= json.loads(done.out)["properties"].keys()


# ------------------------------------------------------------------ diff, apply, reload


async def test_diff_tells_differences_by_exit_code(up: Ctl, config: Path) -> None:
    """diff is exit 0 without a difference and exit 1 with one, which it prints."""
    assert await up("diff", "-", stdin="") == Done(0, "no changes\n", "")
    assert await up("diff") == Done(
        1,
        "MODEL  RELOAD  KEY       OLD  NEW\n"
        '-      live    defaults  -    {"ttl": "5m"}\n'
        "defaults is new\n",
        "",
    )


async def test_diff_of_a_broken_file_is_exit_7(up: Ctl, config: Path) -> None:
    """diff prints the problems; with --json they are in the document too."""
    config.write_text("[")
    done = await up("diff")
    assert (done.code, done.out) == (7, "")
    assert done.err.splitlines()[2:] == ["    [", "    ^", "    write TOML"]
    done = await up("diff", "--json")
    assert (done.code, json.loads(done.out)["valid"]) == (7, False)


async def test_apply_replaces_the_file_and_keeps_the_old(
    up: Ctl, config: Path, fake_daemon: FakeControl
) -> None:
    """apply writes omlx.toml, keeps omlx.toml.bak, and waits for the generation."""
    config.chmod(0o640)
    fake_daemon.lags = True
    new = '[defaults]\nttl = "6m"\n'
    async with up.running("apply", "-") as running:
        finished = asyncio.ensure_future(running.done(new))
        await fake_daemon.followed.wait()
        assert not finished.done()
        fake_daemon.set_status(observed_generation=4)
        assert await finished == Done(0, "generation 4 in force\n", "")
    assert config.read_text() == new
    assert config.with_name("omlx.toml.bak").read_text() == GOOD
    assert stat.S_IMODE(config.stat().st_mode) == 0o640
    assert sorted(p.name for p in config.parent.iterdir()) == ["omlx.toml", "omlx.toml.bak", "run"]


async def test_apply_makes_the_first_file(up: Ctl, ctl_home: Path) -> None:
    """Where there was no omlx.toml, apply makes one for its owner alone."""
    assert (await up("apply", "-", stdin=GOOD)).code == 0
    path = ctl_home / "omlx.toml"
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == (GOOD, 0o600)
    assert not path.with_name("omlx.toml.bak").exists()


async def test_apply_follows_a_link(up: Ctl, config: Path, tmp_path: Path) -> None:
    """An omlx.toml that is a link, as in a folder of dot files, stays one."""
    real = tmp_path / "dotfiles.toml"
    config.replace(real)
    config.symlink_to(real)
    assert (await up("apply", "-", stdin="[server]\n")).code == 0
    assert config.is_symlink()
    assert real.read_text() == "[server]\n"


async def test_apply_of_a_broken_file_changes_nothing(
    up: Ctl, config: Path, fake_daemon: FakeControl
) -> None:
    """Problems are exit 7, and omlx.toml stays as it was."""
    done = await up("apply", "-", stdin="[")
    assert (done.code, done.out) == (7, "")
    assert "write TOML" in done.err
    assert (config.read_text(), fake_daemon.current.generation) == (GOOD, 3)


async def test_apply_without_a_daemon_changes_nothing(down: Ctl, config: Path) -> None:
    """Nobody could say that it is in force, so nothing is written."""
    assert (await down("apply", "-", stdin="[server]\n")).code == 3
    assert config.read_text() == GOOD


async def test_a_rejected_reload_is_exit_7(up: Ctl, fake_daemon: FakeControl) -> None:
    """reload prints the problems of files that are refused."""
    fake_daemon.refusal = invalid("omlx.toml")
    done = await up("reload")
    assert (done.code, done.out) == (7, "")
    assert "omlx.toml:2:1: unknown key tll" in done.err


async def test_a_daemon_with_another_file_is_believed(
    up: Ctl, fake_daemon: FakeControl, tmp_path: Path
) -> None:
    """apply and config path go by the file that the daemon follows."""
    other = tmp_path / "other.toml"
    fake_daemon.set_status(config=ConfigStatus(str(other), True, []))
    assert (await up("config", "path")).out == f"{other}\n"
    assert (await up("apply", "-", stdin=GOOD)).code == 0
    assert other.read_text() == GOOD


# ------------------------------------------------------------------ logs


def record(kind: str = "request", *, age_s: float = 0.0, **fields: Any) -> dict[str, Any]:
    time = datetime.now(UTC) - timedelta(seconds=age_s)
    return {"time": time.isoformat(), "level": "info", "type": kind} | fields


@pytest.fixture
def log(ctl_home: Path) -> Path:
    path = ctl_home / "logs" / "server.log"
    path.parent.mkdir()
    return path


def append(path: Path, *records: dict[str, Any]) -> list[str]:
    lines = [json.dumps(one) for one in records]
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)
    return lines


async def test_logs_are_read_with_what_was_rotated_away(down: Ctl, log: Path) -> None:
    """Lines come oldest first, over all files, as they are, with the daemon down."""
    lines = []
    for suffix, name in ((".10", "a"), (".2", "b"), (".1", "c"), ("", "d")):
        lines += append(log.with_name(f"server.log{suffix}"), record(model=name))
    append(log.with_name("server.log.bak"), record(model="not ours"))
    done = await down("logs")
    assert (done.out.splitlines(), done.code) == (lines, 0)


async def test_logs_are_filtered(down: Ctl, log: Path) -> None:
    """--type, --model and --since narrow what is shown; half a line is left out."""
    lines = append(
        log,
        record(model="A", age_s=7200),
        record(model="A"),
        record("model_load", model="A"),
        record(model="B"),
    )
    with log.open("a") as file:
        file.write('{"half')
    assert (await down("logs")).out.splitlines() == lines
    done = await down("logs", "--type", "request", "--model", "A", "--since", "1h")
    assert done.out.splitlines() == [lines[1]]


async def test_what_is_no_record_passes_unfiltered(down: Ctl, log: Path) -> None:
    """A traceback in the log is shown, but not where lines are picked."""
    log.write_text("Fatal Python error\n")
    assert (await down("logs")).out == "Fatal Python error\n"
    assert (await down("logs", "--type", "request")).out == ""


async def test_following_survives_rotation(down: Ctl, log: Path) -> None:
    """-f shows the last lines, then new ones, also of the file that takes the name over."""
    lines = append(log, *(record(n=n) for n in range(BEFORE_FOLLOWING + 5)))
    async with down.running("logs", "-f") as running:
        shown = [await running.line() for _ in range(BEFORE_FOLLOWING)]
        assert shown == [f"{line}\n" for line in lines[5:]]
        (last,) = append(log, record(n="last of the old file"))
        log.rename(log.with_name("server.log.1"))
        (first,) = append(log, record(n="first of the new file"))
        assert await running.line() == f"{last}\n"
        assert await running.line() == f"{first}\n"


async def test_no_log_is_exit_4(down: Ctl) -> None:
    """A home without a log is named."""
    done = await down("logs")
    assert (done.code, done.out) == (4, "")
    assert f"there is no log at {down.home}/logs/server.log" in done.err


async def test_stats_add_up_request_lines(down: Ctl, log: Path) -> None:
    """logs stats counts requests by model, in a table and as JSON."""
    append(
        log.with_name("server.log.1"),
        record(model="A", status=200, ttft_ms=100, cache_hit=True, age_s=7200),
    )
    append(log, record(model="A", status=200, ttft_ms=300, cache_hit=False), record("listen"))
    table = (await down("logs", "stats")).out.splitlines()
    assert table[1].split()[:4] == ["A", "2", "0", "50%"]
    document = json.loads((await down("logs", "stats", "--since", "1h", "--json")).out)
    (row,) = document["models"]
    assert (row["model"], row["requests"], row["ttft_ms"]["p50"]) == ("A", 1, 300.0)


async def test_options_before_stats_are_refused(down: Ctl, log: Path) -> None:
    """An option of logs does not reach stats, so it is refused there."""
    done = await down("logs", "--since", "1h", "stats")
    assert (done.code, "options go after stats" in done.err) == (2, True)


async def test_a_socket_names_its_home(down: Ctl, log: Path) -> None:
    """With --socket alone the log is looked for in the home that the socket lies in."""
    (line,) = append(log, record())
    sock = os.fspath(down.home / "run" / "omlxd.sock")
    done = await down("logs", "--socket", sock, env={"OMLX_HOME": "/nowhere"})
    assert done.out == f"{line}\n"
