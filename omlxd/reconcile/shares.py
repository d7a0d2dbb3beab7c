"""How the memory limit is divided among the engines that have a worker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from omlxd.reconcile.state import Desired, ModelId


def shares(
    desired: Desired, models: Iterable[ModelId], before: Mapping[ModelId, int]
) -> dict[ModelId, int]:
    """Bytes each of `models` may take in all (weights, KV and caches).

    Everyone gets its estimate and an even part of what is left of the limit; `max_memory` caps a
    share. One that is no longer served keeps what it had `before` until it is gone. While the
    estimates fit the limit, so does the sum. From estimates, not footprints, so that a share
    changes only when engines come and go.
    """
    found = {model: before.get(model, 0) for model in models}
    known = [model for model in found if model in desired.engines]
    if not known:
        return found
    kept = sum(share for model, share in found.items() if model not in desired.engines)
    estimates = {model: desired.engines[model].estimate_bytes for model in known}
    left = desired.memory_limit_bytes - kept - sum(estimates.values())
    even = max(0, left) // len(known)
    for model, estimate in estimates.items():
        cap = desired.engines[model].load.max_memory_bytes
        found[model] = estimate + even if cap is None else min(estimate + even, cap)
    return found
