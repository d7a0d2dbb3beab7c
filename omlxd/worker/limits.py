"""MLX's own memory limits, from the share of memory the daemon gave this worker.

mlx-lm raises the wired limit to what the whole machine recommends whenever a generator is built,
so `apply_limits` runs after that. On the CPU backend the wired limit is a no-op and the memory
limit soft.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass

import mlx.core as mx

MAX_CACHE_BYTES = 1 << 30  # freed buffers that MLX may keep
CACHE_PARTS = 8  # at most this fraction of what the weights leave


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes; None = leave MLX's own."""

    wired: int | None
    memory: int | None
    cache: int | None


def decide_limits(*, share_bytes: int, weights_bytes: int, recommended_bytes: int | None) -> Limits:
    """`share_bytes` 0 = not decided yet; `recommended_bytes` None = the CPU backend.

    There MLX's own limit on kept buffers (a few MiB) is right: the C library keeps memory too.
    """
    if share_bytes == 0:
        return Limits(wired=None, memory=None, cache=None)
    if recommended_bytes is None:
        return Limits(wired=None, memory=share_bytes, cache=None)
    spare = max(0, share_bytes - weights_bytes)
    return Limits(
        wired=min(share_bytes, recommended_bytes),
        memory=share_bytes,
        cache=min(MAX_CACHE_BYTES, spare // CACHE_PARTS),
    )


def recommended_bytes() -> int | None:
    """What the device says may be wired; None on the CPU backend."""
    value = mx.device_info().get("max_recommended_working_set_size")
    return None if value is None else int(value)


def give_back() -> None:
    """Hand freed memory to the system: MLX's kept buffers, and on Linux the C library's."""
    mx.clear_cache()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)


def apply_limits(limits: Limits) -> None:
    """Set them; a limit that is None is left alone."""
    if limits.wired is not None:
        mx.synchronize()  # MLX wants no work in flight while this changes
        mx.set_wired_limit(limits.wired)
    if limits.memory is not None:
        mx.set_memory_limit(limits.memory)
    if limits.cache is not None:
        mx.set_cache_limit(limits.cache)
