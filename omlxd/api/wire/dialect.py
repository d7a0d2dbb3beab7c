"""What a dialect is: a body in, a job out; events in, bytes out. Pure, one module per dialect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from omlxd.api.ports import ServedModel
from omlxd.api.wire import sse
from omlxd.api.wire.fold import Fold
from omlxd.api.wire.picture_source import Picture
from omlxd.errors import OmlxError, RequestInvalid
from omlxd.ipc.messages import Event, Kind, Request

GENERATES = ("llm", "vlm", "ocr")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is known of a request beside its body."""

    request_id: str
    created: int  # Unix seconds
    model: ServedModel


class Renderer(Protocol):
    """Renders one job's answer. Events arrive in order; `Completed` gives the stream's end."""

    def event(self, event: Event) -> bytes:
        """Frames of a stream for one event; often none."""
        ...

    def failure(self, error: OmlxError) -> bytes:
        """The frames that end a stream that has begun."""
        ...

    def result(self, fold: Fold) -> bytes:
        """The JSON body of an answer that is not streamed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One HTTP request, understood. Choice `i` of request `r` is choice `r * n + i`."""

    requests: tuple[Request, ...]
    n: int
    stream: bool
    renderer: Renderer
    media_omitted: int = 0
    pictures: tuple[Picture, ...] = ()  # of the only request; their bytes are still to be read
    keep_alive: bytes = sse.KEEP_ALIVE  # a frame that says nothing, for a stream that waits


class Parse(Protocol):
    def __call__(self, body: Mapping[str, Any], call: Call) -> Job:
        """Raises RequestInvalid with the name of the parameter."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One model route's language. `name` is `api` in the request log."""

    name: str
    parse: Parse


def model_name(body: Mapping[str, Any]) -> str:
    """The name a body asks for; never a default."""
    name = body.get("model")
    if not isinstance(name, str) or not name.strip():
        raise RequestInvalid(
            "model: name the model to use, as a string; GET /v1/models lists them.", param="model"
        )
    return name


def require_kind(model: ServedModel, kind: Kind, route: str) -> None:
    if model.kind != kind:
        raise RequestInvalid(
            f"model: {model.id} is of kind {model.kind}, and {route} needs one of kind {kind}; "
            "GET /v1/models lists the kinds.",
            param="model",
        )


def require_generating(model: ServedModel) -> None:
    if model.kind not in GENERATES:
        raise RequestInvalid(
            f"model: {model.id} is of kind {model.kind} and does not generate text; "
            "GET /v1/models lists the kinds.",
            param="model",
        )
