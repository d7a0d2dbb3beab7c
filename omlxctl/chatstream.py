"""What `chat` says and hears over HTTP: address, request body, server-sent events. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from omlxctl.exits import CtlError

# A listener on every address is reached over loopback.
_ANY = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of the reply; reasoning is what the model thinks before it answers."""

    text: str = ""
    reasoning: str = ""


def address(listen: Sequence[str]) -> tuple[str, int]:
    """Host and port of the first listener. Raises CtlError when there is none."""
    for entry in listen:
        parts = urlsplit(f"//{entry}")
        if parts.port is not None:
            host = parts.hostname or ""
            return _ANY.get(host, host), parts.port
    raise CtlError("omlxd has no HTTP listener", hint="set server.listen in omlx.toml")


def body(
    model: str,
    messages: Sequence[dict[str, str]],
    *,
    max_tokens: int | None,
    temperature: float | None,
) -> dict[str, Any]:
    """Of POST /v1/chat/completions; what is not asked for is left to the server."""
    wanted = {"max_tokens": max_tokens, "temperature": temperature}
    given = {name: value for name, value in wanted.items() if value is not None}
    return {"model": model, "messages": list(messages), "stream": True, **given}


def deltas(lines: Iterable[bytes]) -> Iterator[Delta]:
    """The reply out of the event stream; an error event, or no end, is a CtlError."""
    for line in lines:
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            return
        event = json.loads(data)
        if "error" in event:
            raise CtlError(error_message(data))
        for choice in event.get("choices", []):
            delta = choice.get("delta", {})
            text, reasoning = delta.get("content") or "", delta.get("reasoning_content") or ""
            if text or reasoning:
                yield Delta(text, reasoning)
    raise CtlError("the reply broke off before its end", hint="omlxctl logs says why")


def error_message(data: bytes) -> str:
    """The `message` of an OpenAI error envelope, else the text as it is."""
    try:
        return str(json.loads(data)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return data[:200].decode(errors="replace")
