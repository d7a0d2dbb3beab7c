"""Which of the waiting inputs are computed together. Pure."""

from __future__ import annotations

from collections.abc import Sequence

WINDOW = 256  # inputs looked at, oldest first


def pick(lengths: Sequence[int], *, most_tokens: int) -> list[int]:
    """Places of the inputs for the next batch; `lengths` are theirs in tokens, oldest first.

    The oldest is always among them, so none waits for ever; the others are those nearest to it in
    length, as each is padded to the longest. Padded, a batch has at most `most_tokens`, unless it
    is a single input.
    """
    assert lengths
    order = sorted(range(min(len(lengths), WINDOW)), key=lambda place: (lengths[place], place))
    low = high = order.index(0)
    while True:
        size = high - low + 2
        longer = lengths[order[high + 1]] if high + 1 < len(order) else None
        if low > 0 and size * lengths[order[high]] <= most_tokens:
            low -= 1
        elif longer is not None and size * longer <= most_tokens:
            high += 1
        else:
            return sorted(order[low : high + 1])
