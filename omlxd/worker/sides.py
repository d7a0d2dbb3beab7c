"""What serves a model of each kind in a worker, chosen when the model is named."""

from __future__ import annotations

from collections.abc import Callable

from omlxd.ipc.messages import FromWorker, Kind
from omlxd.worker.side import Side


def make_side(send: Callable[[FromWorker], None], kind: Kind) -> Side:
    """The imports come here where they are not needed by every worker."""
    if kind in ("embedding", "reranker"):
        return _vector_side(send, kind)
    from omlxd.worker.lm import load_engine
    from omlxd.worker.text import TextSide
    from omlxd.worker.text_model import load_text_model

    return TextSide(send, engine_factory=load_engine, load_text=load_text_model)


def _vector_side(send: Callable[[FromWorker], None], kind: Kind) -> Side:
    import mlx.core as mx

    from omlxd.worker.limits import apply_limits, decide_limits, give_back, recommended_bytes
    from omlxd.worker.vector_side import Device, VectorSide

    def limit(share: int, weights: int) -> None:
        recommended = recommended_bytes()
        limits = decide_limits(
            share_bytes=share, weights_bytes=weights, recommended_bytes=recommended
        )
        apply_limits(limits)

    device = Device(
        memory=lambda: (mx.get_active_memory(), mx.get_cache_memory()),
        limit=limit,
        release=give_back,
    )
    if kind == "embedding":
        from omlxd.worker.embedding import load_embedding

        return VectorSide(send, load_model=load_embedding, device=device)
    from omlxd.worker.reranker import load_reranker

    return VectorSide(send, load_model=load_reranker, device=device)
