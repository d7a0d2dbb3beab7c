"""Whether a model's caches come back from pieces: found out once, when it is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from omlxd.kv.types import EntryKind
from omlxd.worker.pages_kinds import KINDS, TOKEN_AXIS, leaves
from omlxd.worker.piece import BlockPieces

if TYPE_CHECKING:
    from omlxd.worker.pages import Pages

PROBE_TOKENS = 9  # at once; then one more
BLOCK_TOKENS = 4
LOGITS_TOLERANCE = 0.02  # of the largest; a wrong cache is off by far more, a ring's order by less


def refusal(templates: Sequence[Any]) -> str:
    """Why caches of these classes cannot be cut into blocks; empty if they can."""
    windows: set[tuple[int, int]] = set()
    for leaf in leaves(templates):
        name, kind = type(leaf).__name__, KINDS.get(type(leaf))
        if kind is None:
            return f"it uses {name}, which cannot be cut into blocks"
        if reason := kind.refusal(leaf):
            return f"it uses {name}, which cannot be cut into blocks: {reason}"
        if kind.entry == "window":
            windows.add((kind.reach(leaf), kind.pad))
    if len(windows) > 1:
        lengths = sorted(reach for reach, _ in windows)
        return f"its layers have windows of several lengths: {lengths}"
    return ""


@dataclass(frozen=True, slots=True)
class _Span:
    kind: EntryKind
    start: int
    stop: int


class Probe:
    """A short row of a model, run without a generator."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.caches = make_prompt_cache(model)
        self._tokens = 0
        self._run(self.caches, range(PROBE_TOKENS))
        self._tokens = PROBE_TOKENS

    def step(self) -> None:
        """One token more, the way tokens are generated."""
        self._run(self.caches, [self._tokens])
        self._tokens += 1

    def round_trip_failure(self, pages: Pages) -> str:
        """Cut, join, merge with a cold row, extract, go on; empty if all is as it was."""
        before = list(_arrays(self.caches, pages))
        joined = pages.join(self._tokens, self._blocks(pages))
        if not _equal(before, _arrays(joined, pages)):
            return "its caches do not come back equal from blocks"
        if all(hasattr(cache, "merge") for cache in joined):
            rows = zip(joined, make_prompt_cache(self._model), strict=True)
            batch = [warm.merge([warm, cold]) for warm, cold in rows]
            if not _equal(before, _arrays([each.extract(0) for each in batch], pages)):
                return "its caches do not come back equal from a batch"
        own, restored = self._run(self.caches, [1]), self._run(joined, [1])
        if mx.abs(own - restored).max() > LOGITS_TOLERANCE * mx.abs(own).max():
            return "it does not go on from blocks as it does from its own caches"
        return ""

    def _run(self, caches: Sequence[Any], tokens: Iterable[int]) -> mx.array:
        logits: mx.array = self._model(mx.array([list(tokens)]), cache=caches)[:, -1]
        mx.eval(logits, [KINDS[type(leaf)].held(leaf).arrays for leaf in leaves(caches)])
        return logits

    def _blocks(self, pages: Pages) -> list[BlockPieces]:
        bounds = [
            (start, min(start + BLOCK_TOKENS, self._tokens))
            for start in range(0, self._tokens, BLOCK_TOKENS)
        ]
        kinds = pages.layout(BLOCK_TOKENS).kinds
        blocks = []
        for start, stop in bounds:
            spans = [_Span(kind, start, stop) for kind in kinds]
            pieces = pages.cut(self.caches, spans, self._tokens)
            blocks.append(BlockPieces(tokens=stop - start, **dict(zip(kinds, pieces, strict=True))))
        return blocks


def _arrays(caches: Sequence[Any], pages: Pages) -> Iterator[mx.array]:
    """What decides how a row goes on: of a window only what is in sight."""
    reach = pages.layout(BLOCK_TOKENS).window - 1
    for leaf in leaves(caches):
        kind = KINDS[type(leaf)]
        for array in kind.held(leaf).arrays:
            if kind.entry == "window":
                yield array[:, :, max(0, array.shape[TOKEN_AXIS] - reach) :]
            else:
                yield array


def _equal(first: Iterable[mx.array], second: Iterable[mx.array]) -> bool:
    pairs = zip(first, second, strict=True)
    return all(a.dtype == b.dtype and mx.array_equal(a, b, equal_nan=True) for a, b in pairs)
