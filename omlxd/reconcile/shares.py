"""How the memory limit is divided among the engines that have a worker."""

from __future__ import annotations

from collections.abc import Iterable

from omlxd.reconcile.state import Desired, ModelId


def shares(desired: Desired, models: Iterable[ModelId]) -> dict[ModelId, int]:
    """Bytes each engine may take in all (weights, KV and caches).

    Everyone gets its estimate and an even part of what is left of the limit; `max_memory` caps a
    share. While the estimates fit the limit, so does the sum. From estimates, not footprints, so
    that a share changes only when engines come and go.
    """
    known = [model for model in models if model in desired.engines]
    if not known:
        return {}
    estimates = {model: desired.engines[model].estimate_bytes for model in known}
    spare = max(0, desired.memory_limit_bytes - sum(estimates.values())) // len(known)
    result = {}
    for model, estimate in estimates.items():
        cap = desired.engines[model].load.max_memory_bytes
        result[model] = estimate + spare if cap is None else min(estimate + spare, cap)
    return result
