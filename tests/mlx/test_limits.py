"""MLX's limits follow from the share of memory; the shell sets what was decided."""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx
import pytest

from omlxd.worker.limits import (
    MAX_CACHE_BYTES,
    Limits,
    apply_limits,
    decide_limits,
    recommended_bytes,
)

pytestmark = pytest.mark.mlx

GB = 1 << 30


def test_no_share_leaves_everything_alone() -> None:
    """Before the daemon has decided, MLX's own limits stand."""
    limits = decide_limits(share_bytes=0, weights_bytes=GB, recommended_bytes=48 * GB)
    assert limits == Limits(wired=None, memory=None, cache=None)


def test_the_wired_limit_is_the_share_and_never_beyond_the_device() -> None:
    """mlx-lm asks for the whole machine; several workers cannot each have that."""
    small = decide_limits(share_bytes=10 * GB, weights_bytes=GB, recommended_bytes=48 * GB)
    large = decide_limits(share_bytes=60 * GB, weights_bytes=GB, recommended_bytes=48 * GB)
    assert (small.wired, large.wired) == (10 * GB, 48 * GB)
    assert small.memory == 10 * GB


def test_a_device_without_the_fact_gets_no_wired_limit() -> None:
    """The CPU backend has none."""
    limits = decide_limits(share_bytes=GB, weights_bytes=0, recommended_bytes=None)
    assert limits.wired is None


def test_kept_buffers_take_an_eighth_of_what_the_weights_leave() -> None:
    """At most a gigabyte, and nothing when the weights fill the share."""
    for share, weights, cache in ((5 * GB, GB, GB // 2), (99 * GB, GB, GB), (GB, 2 * GB, 0)):
        limits = decide_limits(share_bytes=share, weights_bytes=weights, recommended_bytes=GB)
        assert limits.cache == cache <= MAX_CACHE_BYTES


def test_the_cpu_backend_keeps_its_own_limit_on_buffers() -> None:
    """What it keeps beyond that, the C library would keep a second time."""
    limits = decide_limits(share_bytes=5 * GB, weights_bytes=GB, recommended_bytes=None)
    assert limits.cache is None


@pytest.fixture
def restored() -> Iterator[None]:
    memory, cache = mx.set_memory_limit(GB), mx.set_cache_limit(GB)
    yield
    mx.set_memory_limit(memory)
    mx.set_cache_limit(cache)


@pytest.mark.usefixtures("restored")
def test_applying_sets_what_is_given_and_leaves_the_rest() -> None:
    """Read back through the previous values that MLX returns."""
    apply_limits(Limits(wired=None, memory=2 * GB, cache=3 * GB))
    apply_limits(Limits(wired=None, memory=None, cache=None))
    assert mx.set_memory_limit(GB) == 2 * GB
    assert mx.set_cache_limit(GB) == 3 * GB


@pytest.mark.skipif(mx.metal.is_available(), reason="holds on the CPU backend")
def test_the_cpu_backend_recommends_nothing() -> None:
    """Its device facts lack the key."""
    assert recommended_bytes() is None
