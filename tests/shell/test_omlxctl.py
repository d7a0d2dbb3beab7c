"""The real `python -m omlxctl` against a real Unix socket: which daemon, reads and writes."""

from __future__ import annotations

import json
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

from omlxctl.client import SUN_PATH_BYTES
from omlxd.control.wire import RequestStatus, SettingsPatch
from omlxd.errors import Conflict, ModelUnavailable
from tests.fakes.fake_control import TIME, FakeControl, invalid
from tests.support.control_socket import serving
from tests.support.ctl import Ctl, Done

# ------------------------------------------------------------------ which daemon


@pytest.mark.parametrize("where", ["environment", "global", "command", "socket"])
async def test_the_daemon_is_found(up: Ctl, where: str) -> None:
    """By OMLX_HOME, by --home before or after the command, and by --socket."""
    home, sock = str(up.home), str(up.home / "run" / "omlxd.sock")
    args = {
        "environment": ("status",),
        "global": ("--home", home, "status"),
        "command": ("status", "--home", home),
        "socket": ("--socket", sock, "status"),
    }[where]
    env = {} if where == "environment" else {"OMLX_HOME": "/nowhere"}
    done = await up(*args, env=env)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[1] == "listen  127.0.0.1:8000"


async def test_the_option_after_the_command_wins(up: Ctl) -> None:
    """--home of the command goes before that of the program."""
    done = await up("--home", "/nowhere", "status", "--home", str(up.home))
    assert done.code == 0


@pytest.mark.parametrize(
    "args",
    [
        ("status",),
        ("models",),
        ("pin", "M"),
        ("set", "M", "ttl=5m"),
        ("reload",),
        ("events",),
        ("requests",),
        ("top",),
        ("diff", "-"),
        ("apply", "-"),
        ("config", "show"),
        ("chat", "M", "hi"),
        ("wait", "--timeout", "0.2s"),
    ],
)
async def test_no_daemon_is_a_sentence_and_exit_3(down: Ctl, args: tuple[str, ...]) -> None:
    """Without a daemon every command that needs it says where it looked and what to do."""
    done = await down(*args)
    assert (done.code, done.out) == (3, "")
    assert done.err == (
        f"omlxctl: omlxd is not running: nothing answers on {down.home}/run/omlxd.sock\n"
        "  start it with `omlxd`, or name another one with --home DIR or --socket PATH\n"
    )


async def test_a_dead_socket_is_no_daemon(down: Ctl, fake_daemon: FakeControl) -> None:
    """A socket file that nobody listens on is exit 3 too."""
    path = down.home / "run" / "omlxd.sock"
    async with serving(fake_daemon, path):
        os.link(path, path.with_name("left-behind"))
    done = await down("status", "--socket", str(path.with_name("left-behind")))
    assert done.code == 3


async def test_a_socket_path_that_cannot_fit_is_said(down: Ctl) -> None:
    """A path over the limit of Unix sockets is named with both numbers."""
    done = await down("status", "--socket", "/" + "x" * SUN_PATH_BYTES)
    assert done.code == 2
    assert f"is {SUN_PATH_BYTES + 1} bytes long; a Unix socket takes {SUN_PATH_BYTES}" in done.err


async def test_another_version_is_one_warning(up: Ctl, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon of another version is told once on stderr, and the command goes on."""
    monkeypatch.setattr("omlxd.control.app.__version__", "0.0.1")
    done = await up("diff", "-", stdin="[server]\n")
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert "but omlxd is 0.0.1" in done.err


# ------------------------------------------------------------------ reads


async def test_json_is_the_daemons_own(up: Ctl, fake_daemon: FakeControl) -> None:
    """status --json prints the daemon's status unchanged, wherever the option stands."""
    body = msgspec.json.encode(fake_daemon.current).decode() + "\n"
    after, before = await up("status", "--json"), await up("--json", "status")
    assert (after.out, before.out) == (body, body)


async def test_one_model_by_a_short_name(up: Ctl) -> None:
    """status MODEL shows that model, as text and as JSON."""
    text, document = await up("status", "Alpha"), await up("status", "first", "--json")
    assert text.out.startswith("org/Alpha\n  kind      llm\n")
    assert json.loads(document.out)["id"] == "org/Alpha"


async def test_no_such_model_is_exit_4(up: Ctl) -> None:
    """An unknown model is refused with the names there are."""
    done = await up("status", "Gamma")
    assert (done.code, done.out) == (4, "")
    assert done.err == "omlxctl: no model named 'Gamma'; models: org/Alpha, Beta\n"


async def test_models_is_the_table_alone(up: Ctl) -> None:
    """models prints the header and one row a model."""
    done = await up("models")
    assert [line.split()[0] for line in done.out.splitlines()] == ["MODEL", "org/Alpha", "Beta"]


async def test_watching_off_a_terminal_appends_frames(up: Ctl, fake_daemon: FakeControl) -> None:
    """status --watch prints a frame a change, and Ctrl-C ends it quietly with 130."""
    async with up.running("status", "Alpha", "--watch", "--json") as running:
        assert json.loads(await running.line())["phase"] == "absent"
        fake_daemon.set_model("org/Alpha", phase="loading")
        assert json.loads(await running.line())["phase"] == "loading"
        running.send_signal(signal.SIGINT)
        assert await running.done() == Done(130, "", "")


async def test_a_reader_that_has_enough_is_no_error(up: Ctl) -> None:
    """A closed pipe ends the command without a word, also when all of it was still buffered."""
    for args in (("status",), ("status", "--watch"), ("status", "--json")):
        read_end, write_end = os.pipe()
        os.close(read_end)
        async with up.running(*args, stdout=write_end) as running:
            os.close(write_end)
            done = await running.done()
        assert (done.code, done.err) == (130, "")


@pytest.mark.parametrize("args", [("status",), ("status", "--watch"), ("--help",)])
async def test_a_full_disk_is_one_line(up: Ctl, args: tuple[str, ...]) -> None:
    """Output that cannot be written is exit 1 with the reason, and no traceback."""
    with Path("/dev/full").open("wb") as full:  # noqa: ASYNC230 (it takes nothing)
        async with up.running(*args, stdout=full.fileno()) as running:
            done = await running.done()
    assert (done.code, done.err) == (
        1,
        "omlxctl: cannot write to standard output: No space left on device\n",
    )


@pytest.mark.parametrize(
    ("args", "meant"),
    [(("statsu",), "status"), (("cache", "stat"), "stats"), (("cofnig",), "config")],
)
async def test_a_mistyped_command_is_guessed(down: Ctl, args: tuple[str, ...], meant: str) -> None:
    """The nearest command is named; what resembles none gets no guess."""
    done = await down(*args)
    assert (done.code, "did you mean" in done.err.lower(), meant in done.err) == (2, True, True)
    assert "did you mean" not in (await down("xyzzy")).err.lower()


async def test_errors_cannot_steer_the_terminal(up: Ctl) -> None:
    """A name in an error message is shown with its control characters as escapes."""
    done = await up("status", "a\x1b[2J")
    assert (done.code, "\x1b" in done.err, "a\\x1b[2J" in done.err) == (4, False, True)


async def test_requests_and_top(up: Ctl, fake_daemon: FakeControl) -> None:
    """requests lists what runs; top has it below the status."""
    assert (await up("requests")).out == "no requests\n"
    running = RequestStatus(request_id="r1", model="Beta", api="chat", status="decode")
    fake_daemon.running = [running]
    assert (await up("requests")).out.splitlines()[1].startswith("r1       Beta")
    async with up.running("top") as top:
        frame = [await top.line() for _ in range(11)]
    assert frame[0].startswith("omlxd ")
    assert frame[-2].startswith("REQUEST ")
    assert frame[-1].startswith("r1 ")


async def test_events_past_and_coming(up: Ctl, fake_daemon: FakeControl) -> None:
    """events prints the ring and ends; with -f it goes on."""
    fake_daemon.emit("ModelLoaded", "org/Alpha took 2s")
    done = await up("events")
    assert done.out == f"{TIME}  Normal   ModelLoaded           -  org/Alpha took 2s\n"
    async with up.running("events", "-f", "--json") as running:
        assert json.loads(await running.line())["seq"] == 1
        fake_daemon.emit("ModelUnloaded", "ttl")
        assert json.loads(await running.line())["seq"] == 2


async def test_config_show_and_path(up: Ctl) -> None:
    """config show prints values, with their origin on request; path is where omlx.toml is."""
    assert (await up("config", "show")).out == 'server.listen = "x"\n'
    assert (await up("config", "show", "--origin")).out.splitlines()[1].endswith("default")
    assert (await up("config", "path")).out == f"{up.home}/omlx.toml\n"


# ------------------------------------------------------------------ writes


async def test_pin_writes_a_setting(up: Ctl, fake_daemon: FakeControl) -> None:
    """pin is a patch of pin=true and comes back when it is accepted."""
    done = await up("pin", "org/Alpha")
    assert (done.code, done.out) == (0, "accepted (generation 4)\n")
    assert fake_daemon.patches == [SettingsPatch("org/Alpha", {"pin": True})]
    assert (await up("unpin", "org/Alpha", "--wait", "--json")).code == 0
    assert fake_daemon.patches[1] == SettingsPatch("org/Alpha", {"pin": False})


async def test_set_sends_toml_values(up: Ctl, fake_daemon: FakeControl) -> None:
    """set keeps the types of its values; unset names keys."""
    await up("set", "Beta", "ttl=5m", "sampling.temperature=0.7", "max_context=1024")
    await up("unset", "Beta", "ttl", "sampling.temperature")
    values = {"ttl": "5m", "sampling.temperature": 0.7, "max_context": 1024}
    assert fake_daemon.patches[0] == SettingsPatch("Beta", values)
    assert fake_daemon.patches[1] == SettingsPatch("Beta", unset=["ttl", "sampling.temperature"])


@pytest.mark.parametrize("args", [("set", "Beta", "ttl"), ("set", "Beta"), ("unset", "B", "a b")])
async def test_a_wrong_assignment_is_usage(
    up: Ctl, fake_daemon: FakeControl, args: tuple[str, ...]
) -> None:
    """What is not KEY=VALUE is exit 2, and nothing is sent."""
    assert ((await up(*args)).code, fake_daemon.patches) == (2, [])


async def test_a_refused_setting_is_exit_7(up: Ctl, fake_daemon: FakeControl) -> None:
    """Problems of a refused setting are printed with their place and hint."""
    fake_daemon.refusal = invalid("omlx.d/90-omlxctl.toml")
    done = await up("set", "Beta", "tll=5m")
    assert (done.code, done.out) == (7, "")
    assert done.err.splitlines()[1:] == [
        "omlx.d/90-omlxctl.toml:2:1: unknown key tll",
        '    did you mean "ttl"?',
    ]


async def test_unloading_a_pinned_model_is_exit_6(up: Ctl) -> None:
    """The refusal names what pins it."""
    done = await up("unload", "Beta")
    assert done.code == 6
    assert "pinned by omlx.toml" in done.err


async def test_other_refusals_are_exit_1(up: Ctl, fake_daemon: FakeControl) -> None:
    """What is neither usage, absence, conflict nor configuration is a plain failure."""
    fake_daemon.refusal = ModelUnavailable("it cannot be loaded: no weights")
    assert (await up("load", "org/Alpha")).code == 1
    fake_daemon.refusal = Conflict("newer")
    assert (await up("load", "org/Alpha")).code == 6


async def test_a_daemon_that_stops_ends_a_watch(down: Ctl, fake_daemon: FakeControl) -> None:
    """A stream that is cut is exit 1 with a sentence, not an orderly end."""
    fake_daemon.emit("Stopping", "asked to")
    async with AsyncExitStack() as stack:
        async with serving(fake_daemon, down.home / "run" / "omlxd.sock"):
            running = await stack.enter_async_context(down.running("events", "-f"))
            await running.line()
        done = await running.done()
    assert done.code == 1
    assert done.err.startswith("omlxctl: omlxd broke off while answering GET /v1/events?follow=1")
