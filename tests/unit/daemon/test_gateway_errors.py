"""What a worker's `Failed` becomes for the client."""

from __future__ import annotations

from omlxd.daemon.gateway import error_of
from omlxd.errors import ContextOverflow, EngineFailed, QueueFull
from omlxd.ipc.messages import Failed


def test_a_full_queue_says_when_to_try_again() -> None:
    """Retry-After is the worker's own."""
    error = error_of(Failed("r", "queue_full", "full", retry_after_s=7.0))
    assert isinstance(error, QueueFull)
    assert (error.message, error.retry_after_s) == ("full", 7.0)


def test_an_overflow_keeps_both_numbers_and_the_field() -> None:
    """Clients read the numbers, and "prompt" is not "messages"."""
    error = error_of(
        Failed(
            "r",
            "context_length_exceeded",
            "long",
            "prompt",
            prompt_tokens=9,
            max_context=8,
            at_least=True,
        )
    )
    assert isinstance(error, ContextOverflow)
    assert (error.param, error.prompt_tokens, error.max_context) == ("prompt", 9, 8)
    assert error.at_least


def test_a_code_of_another_version_is_a_failure_of_the_engine() -> None:
    """The message still reaches the client."""
    error = error_of(Failed("r", "no_such_code", "odd"))
    assert type(error) is EngineFailed
    assert error.message == "odd"
