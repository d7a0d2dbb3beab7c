"""Error bodies: one shape per family, for every error there is."""

from __future__ import annotations

import msgspec
import pytest

from omlxd.api.wire.errors import error_for, openai_error, retry_after
from omlxd.errors import BY_CODE, ContextOverflow, ModelUnavailable, OmlxError, QueueFull


@pytest.mark.parametrize("kind", list(BY_CODE.values()), ids=lambda kind: kind.__name__)
def test_one_shape_per_family(kind: type[OmlxError]) -> None:
    """Every error has string message, type and code in the envelope of its route's family."""
    error = kind("What happened. What to do.")
    openai = msgspec.json.decode(error_for("/v1/chat/completions", error, "req_1"))
    assert set(openai) == {"error"}
    assert set(openai["error"]) == {"message", "type", "param", "code"}
    assert openai["error"]["message"] == "What happened. What to do."
    assert openai["error"]["code"] == kind.code
    assert isinstance(openai["error"]["type"], str)
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        anthropic = msgspec.json.decode(error_for(path, error, "req_1"))
        assert (anthropic["type"], anthropic["request_id"]) == ("error", "req_1")
        assert set(anthropic["error"]) == {"type", "message"}


def test_a_path_that_only_looks_like_messages() -> None:
    """The family is decided by whole path segments."""
    body = msgspec.json.decode(error_for("/v1/messagesX", OmlxError("x"), "req_1"))
    assert "code" in body["error"]


def test_retry_after() -> None:
    """What may work later says when: in whole seconds, never zero."""
    assert retry_after(QueueFull("x", retry_after_s=0.2)) == "1"
    assert retry_after(ModelUnavailable("x", retry_after_s=7.1)) == "8"
    assert retry_after(QueueFull("x")) == "5"
    assert retry_after(OmlxError("x")) is None


def test_an_overflow_that_was_not_counted_to_its_end_says_so() -> None:
    """Both numbers in the words that clients look for, and no more precision than there is."""
    error = ContextOverflow("too long", prompt_tokens=9000, max_context=64, at_least=True)
    assert b"maximum context length is 64 tokens" in openai_error(error)
    assert b"prompt came to at least 9000 tokens" in openai_error(error)


def test_overflow_without_numbers_keeps_its_own_words() -> None:
    """No made-up figures."""
    assert b'"message":"too long"' in openai_error(ContextOverflow("too long"))


def test_a_conversation_is_called_as_its_route_calls_it() -> None:
    """What the worker says of the messages is said of the input, where that is their name."""
    error = ContextOverflow("too long")
    assert b'"param":"input"' in error_for("/v1/responses", error, "req_1")
    assert b'"param":"messages"' in error_for("/v1/chat/completions", error, "req_1")
    assert b'"param":"n"' in error_for("/v1/responses", OmlxError("x", param="n"), "req_1")
