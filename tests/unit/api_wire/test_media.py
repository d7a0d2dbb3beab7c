"""Pictures in conversations: collected where they occur, in every dialect, for models that see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlxd.api.ports import ServedModel
from omlxd.api.wire import anthropic, media, openai_chat, responses
from omlxd.api.wire.dialect import Call, Job
from omlxd.api.wire.media import Piece, content_of
from omlxd.api.wire.picture_source import Inline, Picture, Remote
from omlxd.errors import RequestInvalid
from omlxd.ipc.messages import Kind
from tests.support.client_bodies import client_bodies
from tests.support.pictures import data_uri, png

PIECES = st.lists(st.text(max_size=5) | st.just(0), max_size=8)
RED, BLUE = png(8, 8, red=200), png(8, 8)
Said = str | bytes  # a text, or a picture


def call(kind: Kind) -> Call:
    return Call(request_id="req_1", created=1, model=ServedModel(id="eyes", kind=kind))


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def image(number: int) -> dict[str, Any]:
    return {"type": "image", "image": number}


# A conversation in each dialect: a user's turn, a call, its result, and a user's turn.
Turns = tuple[Sequence[Said], Sequence[Said], Sequence[Said]]


def in_chat(kind: Kind, turns: Turns) -> Job:
    def parts(said: Sequence[Said]) -> list[Any]:
        return [
            {"type": "image_url", "image_url": {"url": data_uri(s)}}
            if isinstance(s, bytes)
            else text(s)
            for s in said
        ]

    first, result, last = map(parts, turns)
    function = {"name": "see", "arguments": "{}"}
    asked = {"id": "c", "type": "function", "function": function}
    messages = [
        {"role": "user", "content": first},
        {"role": "assistant", "content": None, "tool_calls": [asked]},
        {"role": "tool", "tool_call_id": "c", "content": result},
        {"role": "user", "content": last},
    ]
    return openai_chat.parse({"model": "eyes", "messages": messages}, call(kind))


def in_responses(kind: Kind, turns: Turns) -> Job:
    def parts(said: Sequence[Said]) -> list[Any]:
        return [
            {"type": "input_image", "image_url": data_uri(s), "detail": "high"}
            if isinstance(s, bytes)
            else {"type": "input_text", "text": s}
            for s in said
        ]

    first, result, last = map(parts, turns)
    items = [
        {"role": "user", "content": first},
        {"type": "function_call", "call_id": "c", "name": "see", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": result},
        {"role": "user", "content": last},
    ]
    return responses.parse({"model": "eyes", "input": items}, call(kind))


def in_messages(kind: Kind, turns: Turns) -> Job:
    def blocks(said: Sequence[Said]) -> list[Any]:
        data = [data_uri(s).partition(",")[2] if isinstance(s, bytes) else "" for s in said]
        return [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": d}}
            if isinstance(s, bytes)
            else text(s)
            for s, d in zip(said, data, strict=True)
        ]

    first, result, last = map(blocks, turns)
    messages = [
        {"role": "user", "content": first},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "see"}]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c", "content": result}, *last],
        },
    ]
    return anthropic.parse({"model": "eyes", "messages": messages, "max_tokens": 9}, call(kind))


DIALECTS: list[Callable[[Kind, Turns], Job]] = [in_chat, in_responses, in_messages]


@pytest.mark.parametrize("kind", ["vlm", "ocr"])
@pytest.mark.parametrize("ask", DIALECTS)
def test_pictures_stand_where_they_occurred(ask: Callable[..., Job], kind: Kind) -> None:
    """Several in a turn, in several turns, inside a tool's result; numbered in that order."""
    job = ask(kind, (["what", "is", RED, BLUE, "this"], [RED], [BLUE, "and that"]))
    (request,) = job.requests
    assert request.messages is not None
    user, _, result, again = [message["content"] for message in request.messages]
    assert user == [text("what\nis"), image(0), image(1), text("this")]
    assert result == [image(2)]
    assert again == [image(3), text("and that")]
    assert [picture.source for picture in job.pictures] == [
        Inline(d) for d in (RED, BLUE, RED, BLUE)
    ]
    assert len({picture.where for picture in job.pictures}) == 4
    assert (request.images, job.media_omitted) == ([], 0)


@pytest.mark.parametrize("ask", DIALECTS)
def test_a_text_model_gets_notes(ask: Callable[..., Job]) -> None:
    """No picture is collected for it, and each one that is left out counts."""
    job = ask("llm", (["what", RED], [BLUE], ["?"]))
    note = "[image omitted: eyes has no vision]"
    assert job.requests[0].messages is not None
    contents = [message["content"] for message in job.requests[0].messages]
    assert contents == [f"what\n{note}", "", note, "?"]
    assert (job.pictures, job.media_omitted) == ((), 2)


@pytest.mark.parametrize("ask", DIALECTS)
def test_text_alone_is_a_string(ask: Callable[..., Job]) -> None:
    """A model that sees gets the same conversation as one that does not, if there is no picture."""
    turns = (["a", "b"], ["c"], ["<|image_pad|>"])
    assert ask("vlm", turns).requests == ask("llm", turns).requests


def test_recorded_pictures_of_clients_are_collected() -> None:
    """Claude Code's picture in a tool's result, and Codex's between two texts."""
    body = client_bodies("anthropic")["claude-code__p_image_tool_result"]
    seen = anthropic.parse(body, call("vlm"))
    (picture,) = seen.pictures
    assert isinstance(picture.source, Inline)
    assert seen.requests[0].messages is not None
    assert seen.requests[0].messages[-1]["content"] == [image(0)]
    body = client_bodies("responses")["codex__input_image"]
    (picture,) = responses.parse(body, call("vlm")).pictures
    assert isinstance(picture.source, Inline)


def test_a_count_needs_the_pictures_too() -> None:
    """They have tokens of their own."""
    source = {"type": "url", "url": "https://a/b"}
    content = [{"type": "image", "source": source}]
    body = {"model": "eyes", "messages": [{"role": "user", "content": content}]}
    job = anthropic.parse_count(body, call("vlm"))
    assert job.pictures == (Picture("messages[0].content[0]", Remote("https://a/b")),)


@pytest.mark.parametrize(
    ("result", "content"),
    [
        ([image(7), text("x")], [text("Error:"), image(0), text("x")]),
        ([text("no"), image(7)], [text("Error: no"), image(0)]),
        ([text("Error: no"), image(7)], [text("Error: no"), image(0)]),
    ],
)
def test_a_failed_result_with_a_picture_says_so(result: Any, content: Any) -> None:
    """In a text before it, unless its own text does."""
    source = {"type": "base64", "media_type": "image/png", "data": "iVBO"}
    blocks = [{"type": "image", "source": source} if "image" in b else b for b in result]
    block = {"type": "tool_result", "tool_use_id": "x", "is_error": True, "content": blocks}
    body = {"messages": [{"role": "user", "content": [block]}], "max_tokens": 9}
    (message,) = anthropic.parse(body, call("vlm")).requests[0].messages or []
    assert message["content"] == content


def test_a_picture_inside_a_document_stands_in_it() -> None:
    """Between its title and the text after it."""
    inner = [{"type": "image", "source": {"type": "url", "url": "https://a/b"}}, text("below")]
    document = {"type": "document", "title": "T", "source": {"type": "content", "content": inner}}
    body = {"messages": [{"role": "user", "content": [document]}], "max_tokens": 9}
    job = anthropic.parse(body, call("vlm"))
    (message,) = job.requests[0].messages or []
    assert message["content"] == [text("T"), image(0), text("below")]
    assert job.pictures[0].where == "messages[0].content[0].source.content[0]"


PDF_URI = "data:application/pdf;base64,JVBERi0="
FILE = {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF_URI}}
INPUT_FILE = {"type": "input_file", "filename": "a.pdf", "file_data": PDF_URI}
DOCUMENT = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
}


@pytest.mark.parametrize(
    ("parse", "key", "part"),
    [
        (openai_chat.parse, "messages", FILE),
        (responses.parse, "input", INPUT_FILE),
        (anthropic.parse, "messages", DOCUMENT),
    ],
)
def test_a_document_is_refused_where_it_could_be_read(
    parse: Callable[..., Job], key: str, part: Any
) -> None:
    """By its name and place: a model that sees is not answered as if it had not been sent."""
    body = {key: [{"role": "user", "content": [part]}], "max_tokens": 9}
    with pytest.raises(RequestInvalid, match=f"{part['type']} is not read .* PDF") as refusal:
        parse(body, call("vlm"))
    assert refusal.value.param == f"{key}[0].content[0]"
    assert parse(body, call("llm")).media_omitted == 1


OWN_CHAT = {"role": "assistant", "content": [{"type": "image_url", "image_url": data_uri(RED)}]}
OWN_ITEM = {"role": "assistant", "content": [{"type": "input_image", "image_url": data_uri(RED)}]}
OWN_BLOCK = {
    "role": "assistant",
    "content": [{"type": "image", "source": {"type": "url", "url": "https://a/b"}}],
}


@pytest.mark.parametrize(
    ("parse", "key", "turn"),
    [
        (openai_chat.parse, "messages", OWN_CHAT),
        (responses.parse, "input", OWN_ITEM),
        (anthropic.parse, "messages", OWN_BLOCK),
    ],
)
def test_a_picture_cannot_stand_in_the_models_own_turn(
    parse: Callable[..., Job], key: str, turn: Any
) -> None:
    """A model writes text only, and a reply that goes on with its turn goes on with text."""
    body = {key: [{"role": "user", "content": "x"}, turn], "max_tokens": 9}
    with pytest.raises(RequestInvalid, match="no picture can stand here") as refusal:
        parse(body, call("vlm"))
    assert refusal.value.param == f"{key}[1].content"
    assert parse(body, call("llm")).media_omitted == 1


def test_a_picture_cannot_stand_in_reasoning() -> None:
    """It is refused with its place, not left out."""
    content = [{"type": "input_image", "image_url": data_uri(RED)}]
    items = [{"type": "reasoning", "content": content}, {"role": "user", "content": "x"}]
    with pytest.raises(RequestInvalid, match=r"input\[0\]\.content: no picture can stand here"):
        responses.parse({"input": items}, call("vlm"))


def test_there_is_a_most_number_of_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first that is too many is named."""
    monkeypatch.setattr(media, "MAX_PICTURES", 2)
    in_chat("vlm", ([RED, RED], [], ["x"]))
    with pytest.raises(RequestInvalid, match="one picture more than the 2") as refusal:
        in_chat("vlm", ([RED, "a", RED], [RED], ["x"]))
    assert refusal.value.param == "messages[2].content[0]"
    assert in_chat("llm", ([RED, RED], [RED], ["x"])).media_omitted == 3


@given(PIECES)
def test_content_keeps_all_of_it_in_order(pieces: list[Piece]) -> None:
    """Texts and pictures come out as they went in; texts never lie side by side or are empty."""
    numbers = count()
    numbered = [next(numbers) if isinstance(piece, int) else piece for piece in pieces]
    content = content_of(numbered)
    if isinstance(content, str):
        assert content == "\n".join(map(str, numbered))
        return
    assert [part["image"] for part in content if part["type"] == "image"] == [
        piece for piece in numbered if isinstance(piece, int)
    ]
    kinds = [part["type"] for part in content]
    assert ("text", "text") not in pairwise(kinds)
    texts = "".join(part["text"] for part in content if part["type"] == "text")
    assert all(part["text"] for part in content if part["type"] == "text")
    wanted = "".join(piece for piece in numbered if isinstance(piece, str))
    assert texts.replace("\n", "") == wanted.replace("\n", "")
