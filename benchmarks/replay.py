"""Coding agents over HTTP: omlxd beside mlx-lm's own server, and omlxd after a restart.

    python benchmarks/replay.py MODEL_FOLDER [--servers omlxd,mlx_lm] [--workloads agent,restart]
        [--small] [--rounds 1] [--kill9] [--json OUT] [--markdown]

Servers are started and stopped here, one after the other, with their defaults and the same texts;
every request is greedy and streamed, one at a time. "First token" is from sending the request to
the first piece of text, medians over requests of a kind.

agent      one conversation: a system prompt, then turns with short replies
alternate  two conversations that take turns
restart    two conversations of a few turns; all is written; the server is stopped and started;
           then the last request again, the turn after it, the other conversation's next turn, and
           a prompt of the same size that nobody knows
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from replay_client import Conversation, Message, Reply, Texts, chat
from replay_figures import (
    Kind,
    Run,
    Sample,
    distinct_tokens,
    kv_bytes_per_token,
    rows,
    table,
)
from replay_servers import Program, Server, disk_bytes, mlx_lm_program, omlxd_program, settle

SERVERS = ("omlxd", "mlx_lm")
REST_S = 3.0  # after the first answer; a spare worker is still starting
ITEMSIZES = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """In tokens and turns."""

    agent_prefix: int = 2000
    agent_turns: int = 8
    alternate_prefix: int = 1500
    alternate_turns: int = 4
    restart_turns: int = 3
    new: int = 150  # of a turn
    output: int = 48


SMALL = Sizes(agent_prefix=800, agent_turns=5, alternate_prefix=800)


class Replay:
    """One server's run."""

    def __init__(self, server: Server, texts: Texts, sizes: Sizes, *, kill: bool) -> None:
        self.run = Run(server.program.name)
        self.sizes = sizes
        self._server, self._texts, self._kill = server, texts, kill
        self._sequences: list[list[int]] = []  # prompt and reply of every request

    def start(self) -> None:
        began = time.perf_counter()
        self._server.start()
        self._chat([{"role": "user", "content": "Say hello."}], 2)
        self.run.ready_s.append(time.perf_counter() - began)

    def agent(self) -> None:
        conversation = self._conversation("agent", self.sizes.agent_prefix)
        for _ in range(self.sizes.agent_turns):
            self._turn("agent", conversation)

    def alternate(self) -> None:
        pair = [self._conversation(name, self.sizes.alternate_prefix) for name in ("left", "right")]
        for _ in range(self.sizes.alternate_turns):
            for conversation in pair:
                self._turn("alternate", conversation)

    def restart(self) -> None:
        names = ("again", "later")
        again, later = (self._conversation(name, self.sizes.agent_prefix) for name in names)
        for conversation in (later, again):
            for _ in range(self.sizes.restart_turns):
                self._turn("restart", conversation)
        home = self._server.program.home
        if home is not None:
            settle(home)
        self.run.stop_s.append(self._server.stop(kill=self._kill))
        self.start()
        self._send("restart", "repeat", again, again.messages[:-1])
        self._turn("restart", again, "next")
        self._turn("restart", later, "resumed")
        self._send("restart", "cold", *self._unknown(again))
        if home is not None:
            settle(home)
            self.run.disk_bytes = disk_bytes(home)

    def remember_memory(self, moment: str) -> None:
        self.run.memory_bytes[moment] = self._server.memory_bytes()

    def finish(self) -> Run:
        self.run.distinct_tokens = distinct_tokens(self._sequences)
        return self.run

    def _conversation(self, name: str, prefix_tokens: int) -> Conversation:
        return Conversation(
            name, self._texts, prefix_tokens=prefix_tokens, turn_tokens=self.sizes.new
        )

    def _unknown(self, like: Conversation) -> tuple[Conversation, list[Message]]:
        """A request as long as the last one of `like`, with other texts and the same replies."""
        conversation = self._conversation("unknown", self.sizes.agent_prefix)
        replies = [
            message["content"] for message in like.messages if message["role"] == "assistant"
        ]
        for reply in replies[:-1]:
            conversation.ask()
            conversation.answered(reply)
        return conversation, conversation.ask()

    def _turn(self, workload: str, conversation: Conversation, kind: Kind | None = None) -> None:
        messages = conversation.ask()
        kind = kind or ("cold" if conversation.turn == 1 else "warm")
        conversation.answered(self._send(workload, kind, conversation, messages).text)

    def _send(
        self, workload: str, kind: Kind, conversation: Conversation, messages: list[Message]
    ) -> Reply:
        reply = self._chat(messages, self.sizes.output)
        self.run.samples.append(
            Sample(
                workload=workload,
                kind=kind,
                conversation=conversation.name,
                turn=conversation.turn,
                **dataclasses.asdict(reply),
            )
        )
        return reply

    def _chat(self, messages: list[Message], max_tokens: int) -> Reply:
        program = self._server.program
        reply = chat(program.port, program.model, messages, max_tokens)
        said = self._texts.tokens(reply.text)[: max(0, reply.output_tokens - 1)]
        self._sequences.append([*self._texts.prompt(messages), *said])  # the last has no KV
        return reply


def replay(
    name: str, folder: Path, texts: Texts, sizes: Sizes, *, workloads: Sequence[str], kill: bool
) -> Run:
    """Start the server in a fresh place, run the workloads, stop it."""
    with tempfile.TemporaryDirectory(prefix="omlx-") as scratch:
        program: Program = (
            omlxd_program(folder, Path(scratch)) if name == "omlxd" else mlx_lm_program(folder)
        )
        with Server(program, Path(scratch) / "log") as server:
            one = Replay(server, texts, sizes, kill=kill)
            one.start()
            time.sleep(REST_S)
            one.remember_memory("at rest")
            for workload in (word for word in WORKLOADS if word in workloads):
                began = time.perf_counter()
                if workload == "restart" and len(workloads) > 1:
                    one.remember_memory("after the conversations")
                WORKLOADS[workload](one)
                progress(f"{name}: {workload} took {time.perf_counter() - began:.0f} s")
            moment = "after the restart" if "restart" in workloads else "after the conversations"
            one.remember_memory(moment)
            one.run.stop_s.append(server.stop())
            return one.finish()


WORKLOADS: dict[str, Callable[[Replay], None]] = {
    "agent": Replay.agent,
    "alternate": Replay.alternate,
    "restart": Replay.restart,
}


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def kv_bytes(folder: Path) -> int | None:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    text = config.get("text_config", config)
    itemsize = ITEMSIZES.get(str(text.get("dtype") or text.get("torch_dtype")))
    return None if itemsize is None else kv_bytes_per_token(config, itemsize)


def notes(runs: Sequence[Run]) -> list[str]:
    """What the table does not say: cached tokens, and whether texts agree."""
    made = []
    for run in runs:
        ready = ", ".join(f"{seconds:.1f}" for seconds in run.ready_s)
        stop = ", ".join(f"{seconds:.1f}" for seconds in run.stop_s)
        made.append(f"{run.server}: first answer {ready} s after its start, stopped in {stop} s")
        for sample in run.samples:
            cached = "?" if sample.cached_tokens is None else f"{sample.cached_tokens:,}"
            where = f"{sample.workload:9}  {sample.conversation:7} {sample.turn}  {sample.kind:7}"
            made.append(
                f"  {where}  {sample.ttft_s * 1000:7,.0f} ms  {cached:>6} of "
                f"{sample.prompt_tokens:,} tokens cached, {sample.output_tokens} out"
            )
        made += _disagreements(run)
    texts = [[sample.text for sample in run.samples] for run in runs]
    for run, other in zip(runs[1:], texts[1:], strict=True):
        same = sum(a == b for a, b in zip(texts[0], other, strict=True))
        made.append(f"{run.server} said the same as {runs[0].server} in {same} of {len(other)}")
    return made


def _disagreements(run: Run) -> list[str]:
    """A repeated request must get the reply that it got before the restart."""
    first = {(s.conversation, s.turn): s.text for s in run.samples if s.kind in ("cold", "warm")}
    return [
        f"  {s.conversation} {s.turn}: the reply after the restart is another one"
        for s in run.samples
        if s.kind == "repeat" and s.text != first[s.conversation, s.turn]
    ]


def _chosen(names: str, known: Sequence[str], what: str) -> list[str]:
    chosen = names.split(",")
    if unknown := sorted(set(chosen) - set(known)):
        raise SystemExit(f"no {what} {', '.join(unknown)}: there are {', '.join(known)}")
    return list(dict.fromkeys(chosen))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, metavar="MODEL_FOLDER")
    parser.add_argument("--servers", default=",".join(SERVERS))
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--small", action="store_true", help="prefixes of 800 tokens, 5 turns")
    parser.add_argument("--rounds", type=int, default=1, help="each has every server once")
    parser.add_argument("--kill9", action="store_true", help="restart by SIGKILL of all processes")
    parser.add_argument("--json", type=Path, metavar="OUT", help="everything that was measured")
    parser.add_argument("--markdown", action="store_true", help="print only the table, in Markdown")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are stopped too
    if asked.rounds < 1:
        parser.error("--rounds must be 1 or more")
    folder, sizes = asked.model.absolute(), SMALL if asked.small else Sizes()
    if not (folder / "config.json").is_file():
        raise SystemExit(f"{folder} is no model folder: it has no config.json")
    servers = _chosen(asked.servers, SERVERS, "server")
    workloads = _chosen(asked.workloads, list(WORKLOADS), "workload")
    texts = Texts(folder)
    runs = [
        replay(name, folder, texts, sizes, workloads=workloads, kill=asked.kill9)
        for _ in range(asked.rounds)
        for name in servers
    ]
    made = rows(runs, kv_bytes(folder))
    if asked.json:
        report = {
            "model": folder.name,
            "sizes": dataclasses.asdict(sizes),
            "kill9": asked.kill9,
            "runs": [dataclasses.asdict(run) for run in runs],
        }
        asked.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if not asked.markdown:
        print("\n".join(notes(runs)))
        print()
    how = "SIGKILL" if asked.kill9 else "SIGTERM"
    cores = f"{psutil.cpu_count()} cores"
    print(f"{folder.name}, {platform.system()} {platform.machine()}, {cores}, restart by {how}\n")
    print(table(servers, made, markdown=asked.markdown), end="")


if __name__ == "__main__":
    main()
