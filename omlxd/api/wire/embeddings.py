"""POST /v1/embeddings in OpenAI's shape: body → job, vectors → one object."""

from __future__ import annotations

import base64
from array import array
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from omlxd.api.wire.dialect import Call, Dialect, Job, require_kind
from omlxd.api.wire.errors import openai_error
from omlxd.api.wire.fold import Fold
from omlxd.api.wire.openai_params import TokenId, flatten
from omlxd.api.wire.wording import refusal
from omlxd.errors import OmlxError, RequestInvalid
from omlxd.ipc.messages import Event
from omlxd.ipc.vectors import EmbedRequest

API = "embeddings"
MAX_INPUTS = 2048

Dimensions = Annotated[int, Meta(ge=1, le=1 << 16)]


class EmbeddingParams(Struct, frozen=True, kw_only=True):
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Dimensions | None = None
    truncate: bool = False
    truncate_prompt_tokens: int | None = None


def parse(body: Mapping[str, Any], call: Call) -> Job:
    """One request for all inputs. Raises RequestInvalid."""
    require_kind(call.model, "embedding", "/v1/embeddings")
    body = flatten(body)
    try:
        asked = msgspec.convert(body, EmbeddingParams, str_keys=True)
    except msgspec.ValidationError as error:
        raise refusal(str(error), body) from None
    if asked.truncate_prompt_tokens not in (None, -1):
        raise RequestInvalid(
            "truncate_prompt_tokens: only -1, the model's own limit, is known; or send truncate "
            "true.",
            param="truncate_prompt_tokens",
        )
    request = EmbedRequest(
        request_id=call.request_id,
        model=call.model.id,
        api=API,
        inputs=_inputs(body.get("input")),
        dimensions=asked.dimensions,
        truncate=asked.truncate or asked.truncate_prompt_tokens == -1,
    )
    renderer = EmbeddingRenderer(call, as_base64=asked.encoding_format == "base64")
    return Job(requests=(request,), n=1, stream=False, renderer=renderer)


DIALECT = Dialect(name=API, parse=parse)


class EmbeddingRenderer:
    """One object with all vectors, in the order of the inputs."""

    def __init__(self, call: Call, *, as_base64: bool) -> None:
        self._model, self._as_base64 = call.model.id, as_base64

    def event(self, event: Event) -> bytes:
        return b""  # it is never a stream

    def failure(self, error: OmlxError) -> bytes:
        return openai_error(error)

    def result(self, fold: Fold) -> bytes:
        data = [
            {"object": "embedding", "index": index, "embedding": self._vector(values)}
            for index, values in sorted(fold.vectors.items())
        ]
        tokens = fold.usage.prompt_tokens
        return msgspec.json.encode(
            {
                "object": "list",
                "data": data,
                "model": self._model,
                "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            }
        )

    def _vector(self, values: bytes) -> str | list[float]:
        if self._as_base64:
            return base64.b64encode(values).decode()
        return array("f", values).tolist()


def _inputs(value: Any) -> list[str | list[int]]:
    """One text, one list of token ids, or a list of either."""
    if isinstance(value, str) or _is_tokens(value):
        value = [value]
    if not isinstance(value, list) or not value:
        raise RequestInvalid(
            "input: send a string, token ids, or a list of one or the other.", param="input"
        )
    if len(value) > MAX_INPUTS:
        raise RequestInvalid(
            f"input: has {len(value)} entries; send at most {MAX_INPUTS} at once.", param="input"
        )
    for number, entry in enumerate(value):
        if not isinstance(entry, str) and not _is_tokens(entry):
            where = f"input[{number}]"
            raise RequestInvalid(f"{where}: send a string or token ids.", param=where)
    return value


def _is_tokens(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    try:
        msgspec.convert(value, list[TokenId])
    except msgspec.ValidationError:
        return False
    return True
