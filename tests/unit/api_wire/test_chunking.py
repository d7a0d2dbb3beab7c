"""Any chunking of the same text gives the same answer, streamed or not."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlxd.api.ports import ServedModel
from omlxd.api.wire import openai_chat, openai_completions
from omlxd.api.wire.dialect import Call, Parse
from omlxd.api.wire.fold import Fold
from omlxd.ipc.messages import Accepted, Completed, Delta, Event, Finished, Usage

CALL = Call(request_id="req_ab", created=1, model=ServedModel(id="m", kind="llm"))
BODY = {
    "messages": [{"role": "user", "content": "x"}],
    "prompt": "x",
    "n": 2,
    "stream_options": {"include_usage": True},
}


@st.composite
def chunked(draw: st.DrawFn) -> tuple[list[str], list[Event]]:
    """Two texts, cut at any places and mixed in any order."""
    texts = [draw(st.text(max_size=12)) for _ in range(2)]
    queues: list[list[Event]] = []
    for index, text in enumerate(texts):
        cuts = sorted(draw(st.sets(st.integers(0, len(text)), max_size=4)) | {0, len(text)})
        pieces = [text[a:b] for a, b in itertools.pairwise(cuts)]
        queue: list[Event] = [Delta("req_ab", index, piece) for piece in pieces]
        queues.append([*queue, Finished("req_ab", index, "stop")])
    events: list[Event] = [Accepted("req_ab", 3)]
    while any(queues):
        index = draw(st.sampled_from([i for i, queue in enumerate(queues) if queue]))
        events.append(queues[index].pop(0))
    events.append(Completed("req_ab", Usage(prompt_tokens=3, output_tokens=9)))
    return texts, events


def fold_stream(frames: bytes) -> tuple[dict[int, str], dict[int, str], Any]:
    """What a client puts together: texts, finish reasons, usage."""
    texts: dict[int, str] = {}
    reasons: dict[int, str] = {}
    usage = None
    *chunks, done, end = frames.split(b"\n\n")
    assert (done, end) == (b"data: [DONE]", b"")
    for chunk in chunks:
        body = msgspec.json.decode(chunk.removeprefix(b"data: "))
        usage = body["usage"] or usage
        for choice in body["choices"]:
            text = choice["text"] if "text" in choice else choice["delta"].get("content", "")
            index = choice["index"]
            assert index not in reasons, "a chunk after the finish"
            texts[index] = texts.get(index, "") + text
            if choice["finish_reason"]:
                reasons[index] = choice["finish_reason"]
    return texts, reasons, usage


@pytest.mark.parametrize("parse", [openai_chat.parse, openai_completions.parse])
@given(given_events=chunked())
def test_stream_equals_whole(parse: Parse, given_events: tuple[list[str], list[Event]]) -> None:
    """Text, finish reasons and usage of a stream are those of the whole answer."""
    expected, events = given_events
    job = parse(BODY, CALL)
    frames = b"".join(job.renderer.event(event) for event in events)
    fold = Fold(2)
    for event in events:
        fold.add(event)
    whole = msgspec.json.decode(job.renderer.result(fold))
    texts, reasons, usage = fold_stream(frames)
    assert [texts[0], texts[1]] == expected
    assert reasons == {0: "stop", 1: "stop"}
    assert usage == whole["usage"]
    assert [
        choice.get("text", choice.get("message", {}).get("content")) for choice in whole["choices"]
    ] == expected
