"""`omlxctl chat` against the real HTTP side, and what a terminal sees."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import socket
from collections.abc import AsyncIterator, Iterator

import pytest

from omlxd.api.app import create_app
from omlxd.api.ports import ServerSettings
from omlxd.errors import WorkerDied
from omlxd.ipc.messages import Accepted, Delta, Event, GenerateRequest
from tests.fakes.fake_control import FakeControl
from tests.fakes.fake_gateway import LLM, WORDS, FakeGateway
from tests.support.ctl import Ctl, Done
from tests.support.serving import serving

REPLY = "".join(WORDS)


@pytest.fixture
async def gateway(fake_daemon: FakeControl) -> AsyncIterator[FakeGateway]:
    """The HTTP side, on the address that status names."""
    gateway = FakeGateway()
    async with serving(create_app(gateway)) as port:
        fake_daemon.set_status(listen=[f"127.0.0.1:{port}"])
        yield gateway


async def test_a_question_is_answered(up: Ctl, gateway: FakeGateway) -> None:
    """chat MODEL TEXT prints the reply and hands system prompt and parameters over."""
    options = ("--system", "be brief", "--max-tokens", "9", "--temperature", "0")
    done = await up("chat", "small", "hi", *options)
    assert done == Done(0, f"{REPLY}\n", "")
    (request,) = gateway.requests
    assert request.messages is not None
    assert [(m["role"], m["content"]) for m in request.messages] == [
        ("system", "be brief"),
        ("user", "hi"),
    ]
    assert (request.max_tokens, request.sampling.temperature) == (9, 0.0)


async def test_a_question_comes_from_standard_input(up: Ctl, gateway: FakeGateway) -> None:
    """Without TEXT all of standard input is the question."""
    done = await up("chat", "small", stdin="two\nlines")
    assert (done.code, done.out) == (0, f"{REPLY}\n")
    assert gateway.requests[0].messages is not None
    assert gateway.requests[0].messages[0]["content"] == "two\nlines"


async def test_json_is_the_chunks(up: Ctl, gateway: FakeGateway) -> None:
    """chat --json prints the chunks of the stream, one a line."""
    done = await up("chat", "small", "hi", "--json")
    chunks = [json.loads(line) for line in done.out.splitlines()]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    said = [choice["delta"].get("content", "") for c in chunks for choice in c["choices"]]
    assert "".join(said) == REPLY


async def test_the_key_comes_from_the_environment(up: Ctl, gateway: FakeGateway) -> None:
    """OMLX_API_KEY opens a server that asks for a key; without it the refusal is printed."""
    gateway.settings = ServerSettings(api_keys=("secret",), require_key_on_loopback=True)
    refused = await up("chat", "small", "hi")
    assert (refused.code, refused.out) == (1, "")
    assert "key" in refused.err
    assert (await up("chat", "small", "hi", env={"OMLX_API_KEY": "secret"})).code == 0


async def test_an_unknown_model_is_exit_4(up: Ctl, gateway: FakeGateway) -> None:
    """The server's own sentence about the model is printed."""
    done = await up("chat", "large", "hi")
    assert (done.code, done.out) == (4, "")
    assert "model 'large' does not exist" in done.err


async def test_a_reply_that_dies_is_exit_1(up: Ctl, gateway: FakeGateway) -> None:
    """What was said is printed, then the error of the stream."""

    async def dies(request: GenerateRequest) -> AsyncIterator[Event]:
        yield Accepted(request.request_id, 7)
        yield Delta(request.request_id, 0, "Hel")
        raise WorkerDied("the worker of org/tiny died; send the request again")

    gateway.script = dies
    done = await up("chat", "small", "hi")
    assert (done.code, done.out) == (1, "Hel")
    assert done.err == "omlxctl: the worker of org/tiny died; send the request again\n"


async def test_no_http_listener_is_said(up: Ctl, fake_daemon: FakeControl) -> None:
    """A daemon that listens nowhere cannot chat."""
    fake_daemon.set_status(listen=[])
    done = await up("chat", "small", "hi")
    assert (done.code, "no HTTP listener" in done.err) == (1, True)


# ------------------------------------------------------------------ on a terminal


class Terminal:
    """A pseudo-terminal with a command on it."""

    def __init__(self) -> None:
        self.ours, self.theirs = pty.openpty()
        self._seen = b""

    async def until(self, text: str) -> str:
        """What the command printed up to `text`, which is waited for."""
        wanted = text.encode()
        while wanted not in self._seen:
            self._seen += await asyncio.to_thread(os.read, self.ours, 4096)
        head, _, self._seen = self._seen.partition(wanted)
        return head.decode()

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    yield terminal
    os.close(terminal.ours)
    os.close(terminal.theirs)


TTY = {"TERM": "xterm"}


async def test_a_talk_keeps_both_sides(up: Ctl, gateway: FakeGateway, terminal: Terminal) -> None:
    """On a terminal every line is a turn; replies go back with the next one; Ctrl-D ends it."""
    on_it = {"stdin": terminal.theirs, "stdout": terminal.theirs}
    async with up.running("chat", "small", env=TTY, **on_it) as running:
        await terminal.until("> ")
        terminal.type("hi\n")
        await terminal.until(REPLY)
        await terminal.until("> ")
        terminal.type("and?\n")
        await terminal.until(REPLY)
        await terminal.until("> ")
        terminal.type("\x04")
        assert (await running.done()).code == 0
    messages = gateway.requests[1].messages
    assert messages is not None
    assert [m["content"] for m in messages] == ["hi", REPLY, "and?"]


async def test_a_failed_turn_is_dropped(up: Ctl, gateway: FakeGateway, terminal: Terminal) -> None:
    """A talk goes on after an error, without the question that failed."""
    gateway.served = ()
    on_it = {"stdin": terminal.theirs, "stdout": terminal.theirs}
    async with up.running("chat", "small", env=TTY, **on_it):
        await terminal.until("> ")
        terminal.type("lost\n")
        await terminal.until("> ")
        gateway.served = (LLM,)
        terminal.type("hi\n")
        await terminal.until(REPLY)
    assert gateway.requests[0].messages is not None
    assert [m["content"] for m in gateway.requests[0].messages] == ["hi"]


async def test_a_terminal_is_redrawn_in_place(
    up: Ctl, fake_daemon: FakeControl, terminal: Terminal
) -> None:
    """status --watch draws on the terminal's other screen, and leaves it on Ctrl-C."""
    async with up.running("status", "--watch", env=TTY, stdout=terminal.theirs) as running:
        await terminal.until("\x1b[?1049h")
        await terminal.until("absent")
        fake_daemon.set_model("org/Alpha", phase="loading")
        await terminal.until("loading")
        running.send_signal(signal.SIGINT)
        await terminal.until("\x1b[?1049l")
        assert await running.done() == Done(130, "", "")


@pytest.mark.parametrize(
    ("env", "coloured"),
    [(TTY, True), (TTY | {"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
async def test_colour_is_for_terminals_that_want_it(
    up: Ctl, terminal: Terminal, env: dict[str, str], coloured: bool
) -> None:
    """A terminal has colour, but not with NO_COLOR, and not a dumb one."""
    async with up.running("models", env=env, stdout=terminal.theirs):
        row = await terminal.until("pin")
    assert ("\x1b[32mready" in row) is coloured


async def test_logs_on_a_terminal_are_for_people(down: Ctl, terminal: Terminal) -> None:
    """On a terminal a log line is key=value; --json keeps the line as it is."""
    (down.home / "logs").mkdir()
    line = '{"time":"2026-01-02T03:04:05Z","level":"info","type":"listen","address":"a:1"}'
    (down.home / "logs" / "server.log").write_text(f"{line}\n")
    async with down.running("logs", env=TTY, stdout=terminal.theirs):
        await terminal.until("2026-01-02T03:04:05Z  INFO     listen          address=a:1")
    async with down.running("logs", "--json", env=TTY, stdout=terminal.theirs):
        await terminal.until(line)


# ------------------------------------------------------------------ completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_a_shell_gets_its_script(down: Ctl, shell: str) -> None:
    """completion prints a script that asks omlxctl for the words."""
    done = await down("completion", shell)
    assert (done.code, "_OMLXCTL_COMPLETE" in done.out) == (0, True)


async def completed(ctl: Ctl, words: str) -> list[str]:
    env = {
        "_OMLXCTL_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    done = await ctl(env=env)
    assert done.err == ""
    return done.out.split()


async def test_models_and_commands_are_completed(up: Ctl) -> None:
    """Names of models and their aliases, and names of commands, by what was typed."""
    assert await completed(up, "omlxctl pin ") == ["plain,org/Alpha", "plain,first", "plain,Beta"]
    assert await completed(up, "omlxctl pin or") == ["plain,org/Alpha"]
    assert await completed(up, "omlxctl unl") == ["plain,unload"]


async def test_completion_is_silent_without_a_daemon(down: Ctl) -> None:
    """No daemon, and one that accepts but never answers, complete to nothing."""
    assert await completed(down, "omlxctl pin ") == []
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(os.fspath(down.home / "run" / "omlxd.sock"))
        deaf.listen()
        assert await completed(down, "omlxctl pin ") == []
