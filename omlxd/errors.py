"""Every error that omlxd tells a client or a user about.

OmlxError
├── RequestInvalid            400  the request cannot be served as it is; `param` names the field
│   ├── ContextOverflow       400  prompt and reply do not fit the served window
│   ├── BodyTooLarge          413  the body is longer than we read
│   └── MediaTypeRefused      415  the body is not application/json
├── Unauthorized              401  no key, or not one of ours
├── Forbidden                 403  host, origin or scope refused
├── ModelNotFound             404  no servable model of that name; the message lists what exists
├── NotFound                  404  no such route or object
├── MethodRefused             405  the route exists, with another method
├── Conflict                  409  the file in force says otherwise (a pin), or a newer one came
├── SpecInvalid               422  omlx.toml or a drop-in does not say what can be done
├── QueueFull                 503  retry after `retry_after_s`
├── ModelUnavailable          503  crash loop, back-off, unservable or shutting down
├── ToolServerUnavailable     503  a tool server is off, does not start, or ended under a call
├── RequestTimeout            504  the request's own deadline passed
├── WorkerDied                502  the model's process ended under the request
├── EngineFailed              500  one request failed inside the model
└── MemoryExceeded            507  can never fit under the memory limit; the message has the sum
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from omlxd.spec.report import Problem


class OmlxError(Exception):
    """Base of all; `str()` says what happened, to what, and what to do next."""

    code: ClassVar[str] = "internal_error"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(
        self, message: str, *, param: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s


class RequestInvalid(OmlxError):
    code = "invalid_request"
    status = 400


class ContextOverflow(RequestInvalid):
    """The prompt leaves no room in the served window.

    `at_least`: it was not counted to its end, `prompt_tokens` is what it has at least.
    """

    code = "context_length_exceeded"

    def __init__(
        self,
        message: str,
        *,
        param: str | None = "messages",
        prompt_tokens: int = 0,
        max_context: int = 0,
        at_least: bool = False,
    ) -> None:
        super().__init__(message, param=param)
        self.at_least = at_least
        self.prompt_tokens = prompt_tokens
        self.max_context = max_context


class BodyTooLarge(RequestInvalid):
    code = "body_too_large"
    status = 413


class MediaTypeRefused(RequestInvalid):
    code = "unsupported_media_type"
    status = 415


class Unauthorized(OmlxError):
    code = "invalid_api_key"
    status = 401


class Forbidden(OmlxError):
    code = "forbidden"
    status = 403


class NotFound(OmlxError):
    code = "not_found"
    status = 404


class ModelNotFound(NotFound):
    code = "model_not_found"


class MethodRefused(OmlxError):
    code = "method_not_allowed"
    status = 405


class Conflict(OmlxError):
    code = "conflict"
    status = 409


class SpecInvalid(OmlxError):
    """`problems` holds every one of them, each with its place, where there is one."""

    code = "config_invalid"
    status = 422

    def __init__(self, message: str, *, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class EngineFailed(OmlxError):
    code = "engine_failed"
    status = 500


class WorkerDied(OmlxError):
    code = "worker_died"
    status = 502
    retryable = True


class QueueFull(OmlxError):
    code = "queue_full"
    status = 503
    retryable = True

    @classmethod
    def of(cls, model: str, *, waiting: int, limit: int) -> QueueFull:
        """`limit` is scheduler.max_queue, and so many `waiting` reach it."""
        return cls(
            f"the queue of {model} is full: {waiting} waiting, scheduler.max_queue is {limit};"
            " send the request again later, or raise the setting",
            retry_after_s=5.0,  # it is shorter by then
        )


class ModelUnavailable(OmlxError):
    code = "model_unavailable"
    status = 503
    retryable = True


class ToolServerUnavailable(OmlxError):
    code = "tool_server_unavailable"
    status = 503
    retryable = True


class RequestTimeout(OmlxError):
    code = "request_timeout"
    status = 504


class MemoryExceeded(OmlxError):
    code = "insufficient_memory"
    status = 507


def _tree(base: type[OmlxError]) -> dict[str, type[OmlxError]]:
    found = {base.code: base}
    for child in base.__subclasses__():
        found |= _tree(child)
    return found


BY_CODE: dict[str, type[OmlxError]] = _tree(OmlxError)
