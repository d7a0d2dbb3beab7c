"""A real worker process over a socket pair: its life, and requests through the whole of it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from omlxd.ipc.messages import (
    PROTOCOL,
    Accepted,
    Cancel,
    Completed,
    Configure,
    Delta,
    Event,
    Failed,
    Finished,
    Hello,
    LiveSettings,
    Load,
    LoadFailed,
    LoadSettings,
    Sampling,
    Stats,
    Stop,
    TokenLogprob,
)
from tests.conftest import MakeScripted
from tests.support.worker import Worker, started_worker

pytestmark = pytest.mark.mlx

EMOJI = list("😀".encode())
SCRIPTS = {
    "A": ["Hello", ", world ", *EMOJI, "!"],
    "B": ["one beta", " gamma two"],
    "C": ["ends in be", "ta"],
}


@pytest.fixture(scope="module")
def folder(scripted_model: MakeScripted) -> Path:
    return scripted_model(SCRIPTS)


@pytest.fixture(scope="module")
def serving(folder: Path) -> Iterator[Worker]:
    """One worker for all tests that only send requests."""
    with started_worker() as worker:
        assert isinstance(worker.frame(), Hello)
        worker.load(folder)
        yield worker


@pytest.fixture
def spare() -> Iterator[Worker]:
    """A worker that has said hello, without a model."""
    with started_worker(stderr=subprocess.PIPE) as worker:
        hello = worker.frame()
        assert isinstance(hello, Hello)
        assert (hello.pid, hello.protocol) == (worker.process.pid, PROTOCOL)
        assert set(hello.versions) == {"mlx", "mlx-lm", "transformers"}
        yield worker


def says(key: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"say {key}"}]


def text(events: list[Event], index: int = 0) -> str:
    return "".join(e.text for e in events if isinstance(e, Delta) and e.index == index)


def stderr(worker: Worker) -> str:
    assert worker.process.stderr is not None
    return worker.process.stderr.read()


def test_a_reply_token_by_token(serving: Worker) -> None:
    """Accepted, the script, end of turn, and the numbers of it; an emoji comes in one piece."""
    events = serving.ask(messages=says("A"))
    completed = events[-1]
    assert isinstance(completed, Completed)
    prompt_tokens = len("user: say A")
    assert events[0] == Accepted(completed.request_id, prompt_tokens)
    assert [e.text for e in events if isinstance(e, Delta)] == ["Hello", ", world ", "😀", "!"]
    assert events[-2] == Finished(events[0].request_id, 0, "stop")
    usage = completed.usage
    assert (usage.prompt_tokens, usage.output_tokens) == (prompt_tokens, 8)
    assert usage.computed + usage.cached_tokens == prompt_tokens


@pytest.mark.parametrize(
    ("key", "stop", "expected", "matched"),
    [
        ("B", ["beta gamma"], "one ", "beta gamma"),
        ("B", ["gamma!"], "one beta gamma two", None),
        ("C", ["beta!"], "ends in beta", None),
        ("A", ["😀"], "Hello, world ", "😀"),
    ],
)
def test_stop_strings_over_tokens(
    serving: Worker, key: str, stop: list[str], expected: str, matched: str | None
) -> None:
    """Cut exactly at the match; a tail that only could have matched shows at the end."""
    events = serving.ask(messages=says(key), stop=stop)
    assert text(events) == expected
    assert events[-2] == Finished(events[0].request_id, 0, "stop", matched)
    completed = events[-1]
    assert isinstance(completed, Completed)
    assert completed.usage.computed + completed.usage.cached_tokens == completed.usage.prompt_tokens


def test_a_length_in_the_middle_of_a_character(serving: Worker) -> None:
    """The reply is cut by its length, and the half character is replaced, once."""
    events = serving.ask(messages=says("A"), max_tokens=4)
    assert text(events) == "Hello, world \ufffd"
    assert events[-2] == Finished(events[0].request_id, 0, "length")


def test_choices_of_one_request_run_together(serving: Worker) -> None:
    """Each choice has its own text and end, the request one completion."""
    events = serving.ask(messages=says("B"), n=3, sampling=Sampling(seed=1))
    assert [text(events, index) for index in range(3)] == ["one beta gamma two"] * 3
    assert sum(isinstance(event, Finished) for event in events) == 3
    assert sum(isinstance(event, Completed) for event in events) == 1


def test_log_probabilities_from_the_engine(serving: Worker) -> None:
    """One entry for each shown token, with as many alternatives as were asked for."""
    entries: list[TokenLogprob] = []
    for event in serving.ask(messages=says("A"), top_logprobs=2, max_tokens=2):
        if isinstance(event, Delta):
            entries += event.logprobs or []
    assert [entry.token for entry in entries] == ["Hello", ", world "]
    assert all(len(entry.top) == 2 and entry.top[0][0] == entry.token for entry in entries)


def test_a_raw_prompt_is_echoed_and_gone_on_with(serving: Worker) -> None:
    """Completions take text as it is."""
    assert text(serving.ask(prompt="B", echo=True)) == "Bone beta gamma two"


def test_several_requests_at_once(serving: Worker) -> None:
    """Events of different requests are mixed, each request's are in order."""
    for number in range(5):
        serving.submit(f"r{number}", messages=says("ABC"[number % 3]))
    events = serving.run(*(f"r{number}" for number in range(5)))
    for number in range(5):
        own = [event for event in events if event.request_id == f"r{number}"]
        assert text(own) == text(serving.ask(messages=says("ABC"[number % 3])))
        assert isinstance(own[0], Accepted)
        assert isinstance(own[-1], Completed)


def test_a_refused_request_names_its_parameter(serving: Worker) -> None:
    """The next request is served as if nothing had been."""
    [failed] = serving.ask(messages=says("A"), sampling=Sampling(temperature=9.0))
    assert isinstance(failed, Failed)
    assert (failed.code, failed.param) == ("invalid_request", "temperature")
    assert text(serving.ask(messages=says("B"))) == "one beta gamma two"


def test_nothing_comes_after_a_cancel(serving: Worker) -> None:
    """A cancelled request ends without an event; its neighbour goes on to the end."""
    serving.submit("gone", prompt="A", ignore_eos=True)
    while not any(isinstance(event, Accepted) for event in serving.events()):
        pass
    serving.send(Cancel("gone"))
    serving.submit("stays", messages=says("A"))
    events = serving.run("stays")
    accepted = events.index(next(e for e in events if e.request_id == "stays"))
    assert {event.request_id for event in events[accepted:]} == {"stays"}
    assert text(events[accepted:]) == "Hello, world 😀!"


def test_live_settings_count_at_once(serving: Worker) -> None:
    """The narrower window refuses the next prompt, and can be taken back."""
    serving.send(Configure(LiveSettings(max_context=4)))
    [failed] = serving.ask(messages=says("A"))
    assert isinstance(failed, Failed)
    assert (failed.code, failed.max_context) == ("context_length_exceeded", 4)
    serving.send(Configure(LiveSettings()))
    assert text(serving.ask(messages=says("C"))) == "ends in beta"


def test_figures_come_at_rest(serving: Worker) -> None:
    """When the last request ended, one report says that nothing runs."""
    serving.ask(messages=says("A"))
    while not isinstance(frame := serving.frame(), Stats):
        pass
    assert (frame.running, frame.waiting, frame.rows) == (0, 0, [])
    assert frame.active_bytes > 0


def test_requests_sent_with_the_load_are_answered(spare: Worker, folder: Path) -> None:
    """Accepted as soon as the tokenizer is there, answered when the weights are."""
    settings = LoadSettings(model_id="m", path=str(folder), kind="llm")
    spare.send(Load(settings, LiveSettings()))
    spare.submit(messages=says("B"))
    assert text(spare.run("r")) == "one beta gamma two"


def test_stop_is_a_clean_exit(spare: Worker, folder: Path) -> None:
    """Also in the middle of a reply: code 0, and nothing on stderr."""
    spare.load(folder)
    spare.submit(prompt="A", ignore_eos=True)
    while not any(isinstance(event, Delta) for event in spare.events()):
        pass
    spare.send(Stop())
    assert spare.exit_code() == 0
    assert stderr(spare) == ""


def test_stop_in_the_middle_of_a_long_prompt_is_clean_too(spare: Worker, folder: Path) -> None:
    """Whoever is at work in the accept thread, the process leaves with code 0 and no word."""
    spare.load(folder)
    spare.submit(prompt="a long prompt, " * 50_000)
    spare.send(Stop())
    assert spare.exit_code() == 0
    assert stderr(spare) == ""


def test_a_spare_worker_stops_as_well(spare: Worker) -> None:
    """No model, nothing to end."""
    spare.send(Stop())
    assert spare.exit_code() == 0


def test_a_worker_does_not_outlive_its_daemon(spare: Worker, folder: Path) -> None:
    """When the other end is closed it leaves at once, in whatever phase."""
    spare.load(folder)
    spare.submit(prompt="A", ignore_eos=True)
    spare.sock.shutdown(socket.SHUT_RDWR)
    assert spare.exit_code() == 0


def test_only_sigterm_ends_a_worker(spare: Worker, folder: Path) -> None:
    """Ctrl-C at the daemon's terminal reaches the workers too, and is not for them."""
    os.kill(spare.process.pid, signal.SIGINT)
    spare.load(folder)
    os.kill(spare.process.pid, signal.SIGTERM)
    assert spare.exit_code() == -signal.SIGTERM


def test_bytes_that_are_no_frame_end_the_worker(spare: Worker) -> None:
    """After them nothing that comes can be trusted."""
    spare.sock.sendall(b"\x00\x00\x00\x01\xc1")
    assert spare.exit_code() == 1
    assert "ProtocolError" in stderr(spare)


@pytest.mark.parametrize("missing", ["tokenizer.json", "model.safetensors"])
def test_a_folder_that_cannot_be_loaded(
    spare: Worker, folder: Path, tmp_path: Path, missing: str
) -> None:
    """The worker says why, that trying again is no use, and leaves with code 3."""
    broken = Path(shutil.copytree(folder, tmp_path / "broken"))
    (broken / missing).unlink()
    settings = LoadSettings(model_id="broken", path=str(broken), kind="llm")
    spare.send(Load(settings, LiveSettings()))
    frame = spare.frame()
    while frame is not None and not isinstance(frame, LoadFailed):
        frame = spare.frame()
    assert frame is not None
    assert frame.permanent
    assert "broken" in frame.message
    assert spare.exit_code() == 3


def test_text_and_host_import_no_mlx() -> None:
    """Only the engine touches MLX."""
    code = (
        "import sys, omlxd.worker.host, omlxd.worker.text_model;"
        "sys.exit(any(name.split('.')[0] in ('mlx', 'mlx_lm') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
