"""Error bodies, one shape per API family. `message` is always a string."""

from __future__ import annotations

import math

import msgspec

from omlxd.errors import ContextOverflow, ModelUnavailable, OmlxError, QueueFull

_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error"}
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    500: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
}
DEFAULT_RETRY_AFTER_S = 5


def openai_error(error: OmlxError, *, param: str | None = None) -> bytes:
    """The JSON object that OpenAI clients expect around an error; `param` if not the error's."""
    fallback = "server_error" if error.status >= 500 else "invalid_request_error"
    return msgspec.json.encode(
        {
            "error": {
                "message": openai_message(error),
                "type": _OPENAI_TYPES.get(error.status, fallback),
                "param": param or error.param,
                "code": error.code,
            }
        }
    )


def anthropic_error(error: OmlxError, request_id: str) -> bytes:
    """The JSON object that Anthropic clients expect around an error."""
    fallback = "api_error" if error.status >= 500 else "invalid_request_error"
    kind = _ANTHROPIC_TYPES.get(error.status, fallback)
    return msgspec.json.encode(
        {
            "type": "error",
            "error": {"type": kind, "message": _anthropic_message(error)},
            "request_id": request_id,
        }
    )


def error_for(path: str, error: OmlxError, request_id: str) -> bytes:
    """In the envelope of the family that `path` belongs to."""
    if path == "/v1/messages" or path.startswith("/v1/messages/"):
        return anthropic_error(error, request_id)
    if path == "/v1/responses" and error.param == "messages":
        return openai_error(error, param="input")  # so the conversation is called there
    return openai_error(error)


def retry_after(error: OmlxError) -> str | None:
    """Value of Retry-After in whole seconds, for what may work later."""
    if error.retry_after_s is not None:
        return str(max(1, math.ceil(error.retry_after_s)))
    if isinstance(error, QueueFull | ModelUnavailable):
        return str(DEFAULT_RETRY_AFTER_S)
    return None


def _anthropic_message(error: OmlxError) -> str:
    # Claude Code reads both numbers, and compacts by them.
    if isinstance(error, ContextOverflow) and error.max_context:
        return (
            f"prompt is too long: {'at least ' * error.at_least}{error.prompt_tokens} tokens > "
            f"{error.max_context} maximum"
        )
    return error.message


def openai_message(error: OmlxError) -> str:
    """The message as OpenAI clients read it."""
    # Clients look for this wording, and for both numbers, before they compact a conversation.
    if isinstance(error, ContextOverflow) and error.max_context:
        return (
            f"This model's maximum context length is {error.max_context} tokens, but the "
            f"prompt came to {'at least ' * error.at_least}{error.prompt_tokens} tokens. "
            "Shorten the prompt."
        )
    return error.message
