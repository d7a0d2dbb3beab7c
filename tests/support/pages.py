"""Rows run by mlx-lm's generator, cut wherever a row can be seen, and restored from the pieces."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlx_lm.generate import BatchGenerator

from omlxd.kv.types import EntryKind
from omlxd.worker.pages import Pages
from omlxd.worker.piece import BlockPieces, Piece


@dataclass(frozen=True, slots=True)
class Span:
    kind: EntryKind
    start: int
    stop: int


def pages_of(model: Any) -> Pages:
    pages = Pages.inspect(model)
    assert isinstance(pages, Pages), pages
    return pages


@dataclass
class CutRow:
    """One row's tokens and all pieces that could be cut while it ran."""

    pages: Pages
    block_tokens: int
    tokens: list[int] = field(default_factory=list)
    pieces: dict[Span, Piece] = field(default_factory=dict)

    def cut(self, caches: Sequence[Any], computed: int, *, growing: bool = True) -> None:
        """Every block up to `computed`, and the tail; a longer piece replaces a shorter one."""
        kinds = [k for k in self.pages.layout(self.block_tokens).kinds if growing or k != "kv"]
        spans = [Span(k, *bounds) for bounds in self.bounds(computed) for k in kinds]
        for span, piece in zip(spans, self.pages.cut(caches, spans, computed), strict=True):
            old = self.pieces.get(span)
            if piece is not None and (old is None or piece.tokens > old.tokens):
                self.pieces[span] = piece

    def bounds(self, point: int) -> Iterator[tuple[int, int]]:
        for start in range(0, point, self.block_tokens):
            yield start, min(start + self.block_tokens, point)

    def run(self, point: int) -> list[BlockPieces]:
        """The blocks up to `point`, the last one a tail if the point is no boundary."""
        return [
            BlockPieces(
                tokens=stop - start,
                kv=self.pieces.get(Span("kv", start, stop)),
                window=self.pieces.get(Span("window", start, stop)),
                point=self.pieces.get(Span("point", start, stop)),
            )
            for start, stop in self.bounds(point)
        ]

    def join(self, point: int) -> list[Any]:
        return self.pages.join(point, self.run(point))


def run_and_cut(
    model: Any, prompt: Sequence[int], count: int, *, block_tokens: int, step: int, stride: int
) -> CutRow:
    """Draw `count` tokens; cut at every stride, at n - 1, at the reply's boundaries, at the end."""
    row = CutRow(pages_of(model), block_tokens)
    stops = [*range(stride, len(prompt) - 1, stride), len(prompt) - 1, len(prompt)]
    segments = [list(prompt[a:b]) for a, b in itertools.pairwise([0, *stops])]
    generator = BatchGenerator(model, prefill_step_size=step)
    (uid,) = generator.insert_segments([segments], [count])
    drawn: list[int] = []
    while not row.tokens:
        progress, responses = generator.next()
        for response in progress:
            if response.end_of_segment and not response.end_of_prompt:
                row.cut(generator.extract_cache([uid])[uid][0], response.progress[0])
        for response in responses:
            drawn.append(response.token)
            if response.finish_reason:
                row.tokens = list(response.all_tokens)
                row.cut(response.prompt_cache, len(row.tokens))
            elif (len(prompt) + len(drawn)) % block_tokens == 0:
                caches, tokens = generator.extract_cache([uid])[uid]
                row.cut(caches, len(tokens), growing=False)
    generator.close()
    assert row.tokens == [*prompt, *drawn]
    return row


def draw(
    model: Any, prompts: Sequence[Sequence[int]], caches: Sequence[Any], count: int, *, step: int
) -> list[list[int]]:
    """Greedy tokens of rows that run together; None among `caches` is a cold row.

    Each prompt is what is still to be run.
    """
    generator = BatchGenerator(model, prefill_step_size=step)
    uids = generator.insert([list(p) for p in prompts], [count] * len(prompts), caches=list(caches))
    drawn: dict[int, list[int]] = {uid: [] for uid in uids}
    while any(len(tokens) < count for tokens in drawn.values()):
        for response in generator.next()[1]:
            drawn[response.uid].append(response.token)
    generator.close()
    return [drawn[uid] for uid in uids]
