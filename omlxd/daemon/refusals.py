"""What requests are told that cannot be served. Pure."""

from __future__ import annotations

from omlxd.errors import ModelNotFound, ModelUnavailable, OmlxError, QueueFull, WorkerDied
from omlxd.reconcile.state import Desired, EngineObserved, ModelId


def refusal(
    model: ModelId, engine: EngineObserved, desired: Desired, *, is_stopping: bool
) -> OmlxError | None:
    """Why a request may not wait for this engine; None = it may."""
    if is_stopping:
        return ModelUnavailable(f"omlxd is shutting down; {model} takes no new requests")
    spec = desired.engines.get(model)
    if spec is None:  # gone since its name was resolved
        message = f"{model} is no longer served; omlxctl models lists what is"
        return ModelNotFound(message, param="model")
    if engine.waiting >= max(spec.live.max_queue, 1):
        return QueueFull.of(model, waiting=engine.waiting, limit=spec.live.max_queue)
    return None


def lost(model: ModelId, engine: EngineObserved, why: str) -> OmlxError:
    """What a request is told whose worker ended under it."""
    if engine.phase == "failed":
        return ModelUnavailable(f"{model} cannot be loaded: {engine.failure}")
    return WorkerDied(
        f"the process of {model} ended while it worked on this request ({why}); "
        "it is started again by itself, send the request again"
    )
