"""What rows occupy: a batch's KV is a rectangle, so every row costs as much as the longest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

GROWTH_TOKENS = 256  # buffers grow by this many tokens at a time


@dataclass(frozen=True, slots=True)
class KvCost:
    """Bytes of one row's caches: what grows, what grows up to a window, and what never does."""

    per_token: int = 0
    windows: tuple[tuple[int, int], ...] = ()  # (bytes per token, tokens in the window)
    per_row: int = 0

    @property
    def bytes_per_token(self) -> int:
        """What one more token costs a row that is shorter than every window."""
        return self.per_token + sum(each for each, _ in self.windows)

    def row_bytes(self, tokens: int) -> int:
        """Bytes of one row whose buffers hold `tokens` tokens."""
        held = -(-tokens // GROWTH_TOKENS) * GROWTH_TOKENS
        window_bytes = sum(each * min(held, size) for each, size in self.windows)
        return self.per_row + self.per_token * held + window_bytes

    def tokens_within(self, budget: int) -> int:
        """The longest single row that `budget` bytes hold; 0 = none."""
        if self.row_bytes(GROWTH_TOKENS) > budget:
            return 0
        if self.per_token == 0 and self.row_bytes(1 << 30) <= budget:
            return 1 << 30
        low, high = 1, 2
        while self.row_bytes(high * GROWTH_TOKENS) <= budget:
            low, high = high, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            if self.row_bytes(middle * GROWTH_TOKENS) <= budget:
                low = middle
            else:
                high = middle
        return low * GROWTH_TOKENS

    def rectangle_bytes(self, lengths: Iterable[int]) -> int:
        """Bytes of a batch whose rows have these lengths."""
        rows = list(lengths)
        return len(rows) * self.row_bytes(max(rows)) if rows else 0


def best_lane(lanes: dict[int, list[int]], length: int, *, cost: KvCost, budget: int) -> int | None:
    """The lane a row of `length` tokens should join, by least growth; None = none has room.

    `lanes` holds the row lengths of every open lane. While a row joins, the rectangle it joins
    exists twice.
    """
    total = sum(cost.rectangle_bytes(lengths) for lengths in lanes.values())
    best: tuple[int, int] | None = None
    for lane, lengths in lanes.items():
        joined = cost.rectangle_bytes([*lengths, length])
        growth = joined - cost.rectangle_bytes(lengths)
        copies = 2 if lengths else 1
        if total + growth + (copies - 1) * joined > budget:
            continue
        if best is None or growth < best[0]:
            best = (growth, lane)
    return best[1] if best else None
