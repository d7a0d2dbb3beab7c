"""What a replay sends and how it reads the answers: conversations of a coding agent, streamed.

The texts depend on names and sizes only, so that every server is asked the same; a conversation
goes on with what the server itself said, as clients do.
"""

from __future__ import annotations

import http.client
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REQUEST_TIMEOUT_S = 300.0

_WORDS = (
    "account archive branch buffer cache channel client commit config counter cursor daemon "
    "directory document driver editor engine error event factory field filter folder format "
    "function gateway handler header index input journal kernel label layer ledger library "
    "listener loader logger marker matrix message method module network number object option "
    "output packet parser path pattern pipeline plugin pointer policy process profile project "
    "queue record registry report request resource result router runner schema section sensor "
    "server session setting signal socket source stack state storage stream string symbol table "
    "target template thread ticket timer token tracker value vector version widget window worker"
)
WORDS = _WORDS.split()

Message = dict[str, str]
Maker = Callable[[random.Random], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    ttft_s: float
    total_s: float
    text: str
    prompt_tokens: int
    cached_tokens: int | None
    output_tokens: int


class Texts:
    """Texts of given sizes, counted with the model's own tokenizer."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer  # takes a second: not for --help

        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)

    def prompt(self, messages: list[Message]) -> list[int]:
        text = self._tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=False
        )
        return self.tokens(text)

    def tokens(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def system(self, conversation: str, size: int) -> Message:
        """An agent's instructions and tools, about `size` tokens."""
        source = random.Random(f"{conversation} system")
        head = f"You are the coding agent of project {conversation}. Your tools are:\n"
        return {"role": "system", "content": self._fill(head, _tool, source, size, "")}

    def user(self, conversation: str, turn: int, size: int) -> Message:
        """What a tool gave back, about `size` tokens, and a question that is answered at length."""
        source = random.Random(f"{conversation} turn {turn}")
        head = f"Result of step {turn} in {conversation}:\n"
        tail = "Tell a long story about these files. Begin with: Once upon a time"
        return {"role": "user", "content": self._fill(head, _line, source, size, tail)}

    def _fill(self, head: str, make: Maker, source: random.Random, size: int, tail: str) -> str:
        parts, count = [head], len(self.tokens(head)) + len(self.tokens(tail))
        while count < size:
            part = make(source)
            parts.append(part)
            count += len(self.tokens(part))
        return "".join([*parts, tail])


def _tool(source: random.Random) -> str:
    name = "_".join(source.sample(WORDS, 2))
    about = " ".join(source.sample(WORDS, 9))
    arguments = {word: source.choice(("string", "integer", "boolean")) for word in ("path", "mode")}
    return json.dumps({"name": name, "description": about, "parameters": arguments}) + "\n"


def _line(source: random.Random) -> str:
    folder, file, left, right = source.sample(WORDS, 4)
    return f"{folder}/{file}.py:{source.randrange(1, 900)}: {left} = {right}()\n"


class Conversation:
    """Grows by a question and its reply at a time."""

    def __init__(self, name: str, texts: Texts, *, prefix_tokens: int, turn_tokens: int) -> None:
        self.name = name
        self.turn = 0
        self.messages = [texts.system(name, prefix_tokens)]
        self._texts, self._turn_tokens = texts, turn_tokens

    def ask(self) -> list[Message]:
        """The next request."""
        self.turn += 1
        self.messages.append(self._texts.user(self.name, self.turn, self._turn_tokens))
        return list(self.messages)

    def answered(self, text: str) -> None:
        self.messages.append({"role": "assistant", "content": text})


def chat(port: int, model: str, messages: list[Message], max_tokens: int) -> Reply:
    """One greedy streamed request on a connection of its own. Ends the program if it fails."""
    body = {
        "model": model,
        "messages": messages,
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=REQUEST_TIMEOUT_S)
    began = time.perf_counter()
    try:
        connection.request(
            "POST",
            "/v1/chat/completions",
            json.dumps(body),
            {"Content-Type": "application/json"},
        )
        answer = connection.getresponse()
        if answer.status != 200:
            raise SystemExit(f"HTTP {answer.status}: {answer.read(500).decode(errors='replace')}")
        return _read(answer, began)
    except (OSError, http.client.HTTPException) as error:
        seconds = time.perf_counter() - began
        raise SystemExit(f"request failed after {seconds:.1f} s: {error!r}") from error
    finally:
        connection.close()


def _read(answer: http.client.HTTPResponse, began: float) -> Reply:
    first, text, usage = None, "", None
    for line in iter(answer.readline, b""):
        now = time.perf_counter()
        if now - began > REQUEST_TIMEOUT_S:  # the socket's time-out is only of one read
            raise SystemExit(f"a request took more than {REQUEST_TIMEOUT_S:.0f} s")
        if not line.startswith(b"data:") or line.strip() == b"data: [DONE]":
            continue
        chunk = json.loads(line.removeprefix(b"data:"))
        if "error" in chunk:
            raise SystemExit(f"the stream ended with an error: {chunk['error']}")
        usage = chunk.get("usage") or usage
        for choice in chunk.get("choices", ()):
            delta = choice.get("delta", {})
            said = delta.get("content") or ""
            if first is None and (said or delta.get("reasoning") or delta.get("reasoning_content")):
                first = now
            text += said
    if first is None or usage is None:
        raise SystemExit(f"the stream ended without {'a token' if first is None else 'usage'}")
    return Reply(
        ttft_s=first - began,
        total_s=time.perf_counter() - began,
        text=text,
        prompt_tokens=usage["prompt_tokens"],
        cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
        output_tokens=usage["completion_tokens"],
    )
