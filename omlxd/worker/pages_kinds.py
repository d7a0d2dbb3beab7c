"""What pages need to know about mlx-lm's cache classes. Nothing else asks for a class.

Everything goes through `state`, `from_state` and what a class shows in public, as mlx-lm 0.32.2
has them; `Pages.inspect` tries all of it at load, so a changed layout switches reuse off. A class
that is not in `KINDS` cannot be reused from: quantised and concatenating caches cannot be merged
into a batch with history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, CacheList, ChunkedKVCache, KVCache, RotatingKVCache

from omlxd.kv.types import EntryKind

TOKEN_AXIS = 2  # keys and values are (1, heads, tokens, width)


@dataclass(frozen=True, slots=True)
class Held:
    """What a cache that is not empty holds, in the order of tokens."""

    first: int  # position of the first token held; 0 for a state
    arrays: tuple[mx.array, ...]  # row axis first, one row


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How caches of one class are read and built.

    `reach`: how many tokens before a point a windowed cache must hold to go on from there.
    `pad`: rows to put before those where there are more tokens than `reach`.
    `build`: template, point and arrays to a plain cache that stands at the point.
    """

    entry: EntryKind
    held: Callable[[Any], Held]
    build: Callable[[Any, int, Sequence[mx.array]], Any]
    reach: Callable[[Any], int] = lambda _template: 0
    pad: int = 0
    refusal: Callable[[Any], str] = lambda _template: ""


def _rotating_held(cache: RotatingKVCache) -> Held:
    keys, values, offset, _keep, _max_size, index = cache.state
    if index == keys.shape[TOKEN_AXIS]:
        arrays = (keys, values)
    elif index < offset:  # a ring that has wrapped: `index` is where the next token goes
        arrays = (mx.roll(keys, -index, TOKEN_AXIS), mx.roll(values, -index, TOKEN_AXIS))
    else:  # a buffer that is not full yet
        arrays = (keys[..., :index, :], values[..., :index, :])
    return Held(offset - arrays[0].shape[TOKEN_AXIS], arrays)


def _build_rotating(template: RotatingKVCache, point: int, arrays: Sequence[mx.array]) -> Any:
    keys, values = arrays
    index = keys.shape[TOKEN_AXIS]
    state = (keys, values, point, template.keep, template.max_size, index)
    return type(template).from_state(state)


def _build_chunked(template: ChunkedKVCache, point: int, arrays: Sequence[mx.array]) -> Any:
    keys, values = arrays
    start = point - keys.shape[TOKEN_AXIS]
    return type(template).from_state((keys, values, point, template.chunk_size, start))


def _build_states(template: ArraysCache, _point: int, arrays: Sequence[mx.array]) -> Any:
    return type(template).from_state((list(arrays), None, None))


KINDS: dict[type, Kind] = {
    KVCache: Kind(
        entry="kv",
        held=lambda cache: Held(0, cache.keys_and_values()),
        build=lambda template, point, arrays: type(template).from_state((*arrays, point)),
    ),
    # merge() counts min(point, max_size) rows; the oldest of them is out of everyone's sight.
    RotatingKVCache: Kind(
        entry="window",
        held=_rotating_held,
        build=_build_rotating,
        reach=lambda template: template.max_size - 1,
        pad=1,
        refusal=lambda template: "it keeps first tokens for good" if template.keep else "",
    ),
    ChunkedKVCache: Kind(
        entry="window",
        held=lambda cache: Held(cache.start_position, cache.keys_and_values()),
        build=_build_chunked,
        reach=lambda template: template.chunk_size,
    ),
    ArraysCache: Kind(
        entry="point",
        held=lambda cache: Held(0, tuple(cache.state[0])),
        build=_build_states,
    ),
}


def leaves(caches: Sequence[Any]) -> Iterator[Any]:
    """The caches that hold arrays, in order."""
    for cache in caches:
        if isinstance(cache, CacheList):
            yield from leaves(cache.caches)
        else:
            yield cache


def rebuild(templates: Sequence[Any], restored: Iterator[Any]) -> list[Any]:
    """`restored` leaves in the form of `templates`."""
    return [
        CacheList(*rebuild(template.caches, restored))
        if isinstance(template, CacheList)
        else next(restored)
        for template in templates
    ]
