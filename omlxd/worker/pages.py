"""Pieces cut out of plain mlx-lm caches, and joined into plain caches again.

Plain caches are what `BatchGenerator` gives out (`extract_cache`, `remove`, its last response) and
takes in (`insert(caches=…)`), and what a model that runs alone uses. Rules this file keeps:

1. A piece owns its arrays. Slices and `mx.contiguous` can hold their parent's buffer; joining two
   or more rows always copies. Everything handed out is evaluated, so any thread may have it.
2. Arrays of equal shape and type are one *group* and lie in one array, leaf after leaf: a file
   then has one or two tensors, however many layers.
3. Windowed layers need the last `reach` tokens before a point, recurrent ones their state at
   exactly that point, the others everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from omlxd.kv.types import ENTRY_KINDS, EntryKind, Layout
from omlxd.worker.pages_kinds import KINDS, TOKEN_AXIS, Held, leaves, rebuild
from omlxd.worker.pages_trial import Probe, refusal
from omlxd.worker.piece import BlockPieces, Piece

Shape = tuple[int, ...]


class PagesError(Exception):
    """Caches or pieces that are not this model's, or not enough of them for the point asked for."""


class Span(Protocol):
    """What to cut: one entry of the block that holds tokens [start, stop)."""

    @property
    def kind(self) -> EntryKind: ...
    @property
    def start(self) -> int: ...
    @property
    def stop(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Group:
    """Arrays of all leaves that can lie in one: `members` are (leaf, number of its array)."""

    entry: EntryKind
    shape: Shape  # of one member; 0 for the token axis where there is one
    dtype: mx.Dtype
    members: tuple[tuple[int, int], ...]

    def packed(self, tokens: int) -> Shape:
        """The shape of the array that a piece of `tokens` tokens has for this group."""
        shape = (len(self.members), *self.shape[1:])
        if self.entry == "point":
            return shape
        return (*shape[:TOKEN_AXIS], tokens, *shape[TOKEN_AXIS + 1 :])


class Pages:
    """How one model's caches are cut and joined; holds no array."""

    def __init__(self, templates: Sequence[Any], groups: Sequence[Group]) -> None:
        self._templates = list(templates)  # empty caches, in the model's own form
        self._leaves = list(leaves(templates))
        self._kinds = [KINDS[type(leaf)] for leaf in self._leaves]
        self._groups = {k: tuple(g for g in groups if g.entry == k) for k in ENTRY_KINDS}
        kinds = zip(self._kinds, self._leaves, strict=True)
        windows = [(kind.reach(leaf), kind.pad) for kind, leaf in kinds if kind.entry == "window"]
        # All windows are of one length: `refusal` sees to it.
        self._reach, self._pad = windows[0] if windows else (0, 0)

    @classmethod
    def inspect(cls, model: Any) -> Pages | str:
        """The pages of a model, or why its prefixes cannot be reused. Runs a few tokens."""
        try:
            templates = make_prompt_cache(model)
            if reason := refusal(templates):
                return reason
            probe = Probe(model)
            groups = group_arrays(probe.caches)
            probe.step()
            if group_arrays(probe.caches) != groups:
                return "its caches change their shape or type from step to step"
            pages = cls(templates, groups)
            return probe.round_trip_failure(pages) or pages
        except Exception as error:  # whatever a model does here, it can be served without reuse
            return f"its caches failed a trial: {type(error).__name__}: {error}"

    def layout(self, block_tokens: int) -> Layout:
        """Which entries a block of this model has."""
        return Layout(
            block_tokens=block_tokens,
            grows=bool(self._groups["kv"]),
            window=self._reach + 1 if self._groups["window"] else 0,
            recurrent=bool(self._groups["point"]),
        )

    # ------------------------------------------------------------------ cut

    def cut(
        self, caches: Sequence[Any], spans: Sequence[Span], computed: int
    ) -> list[Piece | None]:
        """One piece per span, all in one evaluation, in the thread that made the caches.

        `computed` is how many tokens the caches hold. None where they hold nothing of what is
        asked: `kv` takes all of its block, `point` the state at the block's end, `window` what
        there is of the block's last tokens (`Piece.tokens`). Raises PagesError for caches that
        are not this model's or stand elsewhere.
        """
        if computed == 0 or not spans:
            return [None] * len(spans)
        held = self._held(caches, computed)
        pieces = [self._cut_one(held, span, computed) for span in spans]
        mx.eval([piece.arrays for piece in pieces if piece is not None])
        return pieces

    def _held(self, caches: Sequence[Any], computed: int) -> list[Held]:
        rows = list(leaves(caches))
        if [type(row) for row in rows] != [type(leaf) for leaf in self._leaves]:
            raise PagesError(f"these are no caches of this model: {[type(row) for row in rows]}")
        held = [kind.held(row) for kind, row in zip(self._kinds, rows, strict=True)]
        for group in self._all_groups():
            for leaf, number in group.members:
                array = held[leaf].arrays[number]
                if (_member_shape(array, group.entry), array.dtype) != (group.shape, group.dtype):
                    raise PagesError(
                        f"cache {leaf} holds {array.dtype} {array.shape} where {group.dtype} "
                        f"{group.shape} was seen at load"
                    )
                end = held[leaf].first + array.shape[TOKEN_AXIS]
                if group.entry != "point" and end != computed:
                    raise PagesError(f"cache {leaf} stands at {end} tokens, not at {computed}")
        return held

    def _cut_one(self, held: Sequence[Held], span: Span, computed: int) -> Piece | None:
        groups = self._groups[span.kind]
        if not groups or span.stop > computed or (span.kind == "point" and span.stop < computed):
            return None
        if span.kind == "point":
            arrays = [_packed([held[leaf].arrays[n] for leaf, n in g.members]) for g in groups]
            return Piece("point", 0, tuple(arrays))
        first = max(held[leaf].first for group in groups for leaf, _ in group.members)
        begin = max(span.start, first)
        if begin >= span.stop or (span.kind == "kv" and begin > span.start):
            return None
        arrays = [
            _packed(
                _between(
                    held[leaf].arrays[n], begin - held[leaf].first, span.stop - held[leaf].first
                )
                for leaf, n in group.members
            )
            for group in groups
        ]
        return Piece(span.kind, span.stop - begin, tuple(arrays))

    # ------------------------------------------------------------------ join

    def join(self, point: int, run: Sequence[BlockPieces], *, room: int = 0) -> list[Any]:
        """Plain caches that stand at `point` tokens, evaluated, fit for `insert(caches=…)`.

        `run` are the blocks from the first token on; the last one holds the point. Growing caches
        take `room` more tokens before they must be copied to grow. Raises PagesError if a piece
        that the point needs is missing, too short or of another model.
        """
        length = sum(block.tokens for block in run)
        if not run or not length - run[-1].tokens < point <= length:
            raise PagesError(
                f"a run of {length} tokens in {len(run)} blocks does not end at {point}"
            )
        arrays: list[dict[int, mx.array]] = [{} for _ in self._leaves]
        for kind, groups in self._groups.items():
            parts = self._parts(kind, point, run) if groups else []
            for number, group in enumerate(groups):
                rows = [part[number] for part in parts]
                for row, (leaf, place) in enumerate(group.members):
                    one = [each[row : row + 1] for each in rows]
                    arrays[leaf][place] = self._joined(one, kind, point, room)
        mx.eval(arrays)
        built = [
            kind.build(template, point, [each[place] for place in sorted(each)])
            for kind, template, each in zip(self._kinds, self._leaves, arrays, strict=True)
        ]
        return rebuild(self._templates, iter(built))

    def _parts(
        self, kind: EntryKind, point: int, run: Sequence[BlockPieces]
    ) -> list[tuple[mx.array, ...]]:
        """The arrays, per group, of every piece that the point needs, in the order of tokens."""
        if kind == "point":
            if point != sum(block.tokens for block in run):
                raise PagesError(f"no state can be had at {point}, inside a block")
            return [self._checked(run[-1].point, "point").arrays]
        low = 0 if kind == "kv" else max(0, point - self._reach)
        parts, start = [], 0
        for block in run:
            stop = start + block.tokens
            begin, end = max(low, start), min(point, stop)
            if begin < end:
                piece = self._checked(block.kv if kind == "kv" else block.window, kind)
                first = stop - piece.tokens  # a piece ends where its block ends
                if first > begin:
                    raise PagesError(f"the {kind} piece of {start}…{stop} begins at {first}")
                parts.append(
                    tuple(_between(array, begin - first, end - first) for array in piece.arrays)
                )
            start = stop
        if not parts:  # a window that reaches no token back
            raise PagesError(f"nothing to join at {point}")
        return parts

    def _checked(self, piece: Piece | None, kind: EntryKind) -> Piece:
        if piece is None:
            raise PagesError(f"a {kind} piece is missing")
        expected = [(group.packed(piece.tokens), group.dtype) for group in self._groups[kind]]
        if piece.kind != kind or [(tuple(a.shape), a.dtype) for a in piece.arrays] != expected:
            raise PagesError(
                f"a {piece.kind} piece of {[(a.shape, a.dtype) for a in piece.arrays]} "
                f"where {kind} {expected} is wanted"
            )
        return piece

    def _joined(self, rows: list[mx.array], kind: EntryKind, point: int, room: int) -> mx.array:
        """One array in a buffer of its own, so that its cache can write into it."""
        shape = list(rows[0].shape)
        if kind == "window" and self._pad and point > self._reach:
            shape[TOKEN_AXIS] = self._pad
            rows = [mx.zeros(shape, rows[0].dtype), *rows]
        if kind == "kv" and room:
            shape[TOKEN_AXIS] = room
            rows = [*rows, mx.zeros(shape, rows[0].dtype)]
        return mx.concatenate(rows, axis=TOKEN_AXIS) if len(rows) > 1 else mx.array(rows[0])

    def _all_groups(self) -> Iterator[Group]:
        for groups in self._groups.values():
            yield from groups


def _packed(rows: Iterable[mx.array]) -> mx.array:
    """One array of all rows that shares no buffer with them."""
    each = list(rows)
    return mx.concatenate(each, axis=0) if len(each) > 1 else mx.array(each[0])


def _between(array: mx.array, begin: int, end: int) -> mx.array:
    return array[:, :, begin:end]


def _member_shape(array: mx.array, entry: EntryKind) -> Shape:
    shape = tuple(array.shape)
    return shape if entry == "point" else (*shape[:TOKEN_AXIS], 0, *shape[TOKEN_AXIS + 1 :])


def group_arrays(caches: Sequence[Any]) -> list[Group]:
    """Sort all arrays of caches that hold something by entry, shape and type."""
    members: dict[tuple[EntryKind, Shape, mx.Dtype], list[tuple[int, int]]] = {}
    for leaf, cache in enumerate(leaves(caches)):
        kind = KINDS[type(cache)]
        for number, array in enumerate(kind.held(cache).arrays):
            key = (kind.entry, _member_shape(array, kind.entry), array.dtype)
            members.setdefault(key, []).append((leaf, number))
    return [Group(*key, tuple(each)) for key, each in members.items()]
