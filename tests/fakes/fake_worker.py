"""A worker that needs no model: a real program that speaks the frames, with faults on request.

    python tests/fakes/fake_worker.py --fd N [--script JSON]

The script is JSON, from `--script` or else from the environment variable OMLXD_FAKE_WORKER; the
keys are the fields of `Script`, and a key under `models.<model id>` counts for that model only:

    {"tokens": 20, "token_delay_s": 0.01, "models": {"bad": {"load": "fail"}}}

By default it answers Load with TokenizerReady and Loaded, and Submit with Accepted, one Delta per
token (the words of the last message or of the prompt, over and over), Finished for every choice
and Completed; Stats follow whenever a request starts or ends. Cancel ends a request at its next
token. `delay` fields are for tests that watch something from outside; a fault that should strike
once per test rather than in every worker names a file in `once`: who creates it strikes.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any, Literal

import msgspec

from omlxd.ipc.channel import BlockingChannel, ChannelClosed
from omlxd.ipc.messages import (
    PROTOCOL,
    Accepted,
    CacheCommand,
    CacheDone,
    CacheEvicted,
    CacheReport,
    Cancel,
    Completed,
    Configure,
    Delta,
    Event,
    Events,
    Failed,
    Finished,
    FinishReason,
    GenerateRequest,
    Hello,
    LiveSettings,
    Load,
    Loaded,
    LoadFailed,
    PrefixMatch,
    RowStats,
    Stats,
    Stop,
    Submit,
    TokenizerReady,
    ToWorker,
    Usage,
)


class Script(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What this worker does. Durations in seconds."""

    # --- start
    hello: bool = True  # False: connects and says nothing
    hello_delay_s: float = 0.0
    protocol: int = PROTOCOL
    print_at_start: list[str] = []  # to stderr, one line each, before Hello
    print_in_load: list[str] = []
    print_settings: bool = False  # as JSON, whenever it is given some

    # --- load
    load: Literal["ok", "fail", "fail_permanent", "die", "hang"] = "ok"
    load_delay_s: float = 0.0  # between TokenizerReady and Loaded
    max_context: int = 4096
    weights_bytes: int = 1024**2
    hold_bytes: int = 0  # memory really taken while loaded

    # --- requests
    tokens: int = 5  # per choice; a smaller max_tokens cuts it, with reason "length"
    token_delay_s: float = 0.0  # before each token
    cached_tokens: int = 0  # of the prompt, said to come from RAM
    match: dict[str, Any] | None = None  # fields of PrefixMatch, in every Completed
    prefix_reuse: bool = True
    cache: dict[str, Any] | None = None  # fields of CacheReport, sent after Loaded and requests
    evicted: dict[str, Any] | None = None  # fields of CacheEvicted, sent before each report
    cache_command: Literal["answer", "ignore", "die"] = "answer"  # with 3 entries, 4096 bytes
    fail_submit: str = ""  # error code: answer with Failed instead of Accepted
    fail_after_tokens: int | None = None  # Failed after so many tokens of a request
    die_after_tokens: int | None = None  # the process ends there; 0 = right after Accepted
    garbage_after_tokens: int | None = None  # sends a frame that is no message
    exit_code: int | None = None  # how it dies: this code, or by SIGKILL

    # --- stop
    ignore_stop: bool = False
    ignore_sigterm: bool = False
    close_channel: bool = False  # right after Hello, and lives on

    once: str = ""  # path: faults strike only in the worker that creates this file
    models: dict[str, dict[str, Any]] = {}


FAULTS = ("load", "fail_submit", "fail_after_tokens", "die_after_tokens", "garbage_after_tokens")


def die(script: Script) -> None:
    if script.exit_code is not None:
        sys.stderr.flush()
        os._exit(script.exit_code)
    os.kill(os.getpid(), signal.SIGKILL)


class FakeWorker:
    def __init__(self, channel: BlockingChannel[ToWorker], script: Script) -> None:
        self.channel = channel
        self.script = script
        self.raw = script
        self.cancelled: set[str] = set()
        self.rows: dict[str, RowStats] = {}
        self.lock = threading.Lock()  # of cancelled and rows
        self.held = b""

    def run(self) -> None:
        for line in self.script.print_at_start:
            print(line, file=sys.stderr)  # noqa: T201
        if self.script.hello_delay_s:
            threading.Event().wait(self.script.hello_delay_s)
        if self.script.hello:
            self.channel.send(
                Hello(pid=os.getpid(), protocol=self.script.protocol, versions={"fake": "1"})
            )
        if self.script.close_channel:
            self.channel.close()
            threading.Event().wait()
        while (message := self.channel.receive()) is not None:
            if isinstance(message, Stop) and not self.script.ignore_stop:
                return
            if self.script.hello:
                self.take(message)

    def take(self, message: ToWorker) -> None:
        match message:
            case Load():
                self.load(message)
            case Configure():
                self.show(message.live)
            case Submit():
                threading.Thread(
                    target=self.serve, args=(message.request,), name=message.request.request_id
                ).start()
            case CacheCommand():
                self.command_cache(message)
            case Cancel():
                with self.lock:
                    self.cancelled.add(message.request_id)
            case Stop():
                pass  # ignored

    # ---------------------------------------------------------------- load

    def load(self, message: Load) -> None:
        script = self.script = self.for_model(message.load.model_id)
        for line in script.print_in_load:
            print(line, file=sys.stderr)  # noqa: T201
        self.show(message.live)
        self.channel.send(TokenizerReady(max_context=script.max_context))
        if script.load_delay_s:
            threading.Event().wait(script.load_delay_s)
        if script.load == "die":
            die(script)
        if script.load == "hang":
            return
        if script.load != "ok":
            permanent = script.load == "fail_permanent"
            self.channel.send(LoadFailed("the script says so", permanent=permanent))
            os._exit(1)
        self.held = os.urandom(script.hold_bytes)
        self.channel.send(
            Loaded(
                duration_s=script.load_delay_s,
                weights_bytes=script.weights_bytes,
                max_context=script.max_context,
                batches=True,
                prefix_reuse=script.prefix_reuse,
                prefix_reuse_reason="" if script.prefix_reuse else "the script says so",
                kv_bytes_per_token=128,
            )
        )
        self.report_cache()

    def show(self, live: LiveSettings) -> None:
        if self.script.print_settings:
            print(msgspec.json.encode(live).decode(), file=sys.stderr)  # noqa: T201

    def for_model(self, model_id: str) -> Script:
        merged = msgspec.to_builtins(self.raw) | self.raw.models.get(model_id, {})
        script = msgspec.convert(merged, Script)
        if script.once and not strikes(Path(script.once)):
            calm = Script()
            for name in FAULTS:
                setattr(script, name, getattr(calm, name))
        return script

    # ---------------------------------------------------------------- requests

    def serve(self, request: GenerateRequest) -> None:
        try:
            self.answer(request)
        except ChannelClosed:
            os._exit(0)  # the daemon is gone

    def answer(self, request: GenerateRequest) -> None:
        if self.script.fail_submit:
            self.send(Failed(request.request_id, self.script.fail_submit, "the script says so"))
            return
        words = prompt_words(request)
        self.send(Accepted(request.request_id, len(words)))
        self.report(RowStats(request.request_id, "decode", len(words), len(words), 0))
        sent = self.stream(request, words)
        if sent is not None:
            cached = min(self.script.cached_tokens, len(words))
            usage = Usage(
                prompt_tokens=len(words),
                output_tokens=sent,
                cached_tokens=cached,
                ram=cached,
                computed=len(words) - cached,
            )
            match = self.script.match
            found = None if match is None else PrefixMatch(**match)
            self.send(Completed(request.request_id, usage, match=found))
        self.report(request.request_id)
        self.report_cache()

    def stream(self, request: GenerateRequest, words: list[str]) -> int | None:
        """Tokens sent; None if the request is over already: cancelled or failed."""
        tokens = self.script.tokens
        count = tokens if request.max_tokens is None else min(request.max_tokens, tokens)
        reason: FinishReason = "length" if count < tokens else "stop"
        sent = 0
        for index in range(request.n):
            for position in range(count):
                if not self.may_go_on(request.request_id, sent):
                    return None
                word = words[position % len(words)]
                text = word if position == 0 else f" {word}"
                self.send(Delta(request.request_id, index, text))
                sent += 1
            self.send(Finished(request.request_id, index, reason))
        return sent if self.may_go_on(request.request_id, sent) else None

    def may_go_on(self, request_id: str, sent: int) -> bool:
        """Waits for the next token; strikes if it is time to."""
        script = self.script
        if script.token_delay_s:
            threading.Event().wait(script.token_delay_s)
        if sent == script.die_after_tokens:
            die(script)
        if sent == script.garbage_after_tokens:
            self.channel.send("this is no message")
        if sent == script.fail_after_tokens:
            self.send(Failed(request_id, "engine_failed", "the script says so"))
            return False
        with self.lock:
            return request_id not in self.cancelled

    def send(self, event: Event) -> None:
        self.channel.send(Events([event]))

    def report_cache(self) -> None:
        if self.script.evicted is not None:
            self.channel.send(CacheEvicted(**self.script.evicted))
        if self.script.cache is not None:
            self.channel.send(CacheReport(**self.script.cache))

    def command_cache(self, command: CacheCommand) -> None:
        if self.script.cache_command == "die":
            die(self.script)
        if self.script.cache_command == "answer":
            self.channel.send(CacheDone(command.command_id, entries=3, bytes=4096))

    def report(self, change: RowStats | str) -> None:
        """A row that started, or the id of one that ended."""
        with self.lock:
            if isinstance(change, str):
                del self.rows[change]
            else:
                self.rows[change.request_id] = change
            stats = Stats(
                running=len(self.rows),
                waiting=0,
                active_bytes=self.script.weights_bytes,
                cache_bytes=0,
                decode_tps=100.0 if self.rows else 0.0,
                rows=list(self.rows.values()),
            )
            self.channel.send(stats)


def prompt_words(request: GenerateRequest) -> list[str]:
    """The prompt's tokens, one word each; never none."""
    if request.messages:
        content = request.messages[-1].get("content")
        words = content.split() if isinstance(content, str) else []
    elif isinstance(request.prompt, str):
        words = request.prompt.split()
    else:
        words = [str(token) for token in request.prompt or ()]
    return words or ["token"]


def strikes(path: Path) -> bool:
    """True for the one caller that created the file."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--script", default=os.environ.get("OMLXD_FAKE_WORKER", "{}"))
    args = parser.parse_args()
    script = msgspec.json.decode(args.script, type=Script)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if script.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    channel: BlockingChannel[ToWorker] = BlockingChannel(socket.socket(fileno=args.fd), ToWorker)
    FakeWorker(channel, script).run()
    sys.stderr.flush()
    os._exit(0)  # request threads may still wait for their next token


if __name__ == "__main__":
    main()
