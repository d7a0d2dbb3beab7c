"""Where prefill stops for a moment, so that the prefix cache can take what the caches hold.

A row is seen at the end of every prefill chunk. Layers that keep every token can be cut anywhere
behind that; windows hold what is in sight there and the chunk itself; the state of recurrent layers
is that of the chunk's very end, so chunks have to end where a later request may go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from omlxd.kv.types import Layout

STRIDE_TOKENS = 1024  # newly computed tokens that may be lost if the worker dies


def plan_pauses(
    layout: Layout, *, start: int, total: int, shared: Iterable[int] = ()
) -> tuple[int, ...]:
    """Points inside the run of tokens [start, total), in order.

    The last is before the last token, which draws the first token of the reply: the very same
    prompt restores all that comes before. `shared`: where waiting rows part from this one.
    """
    block = layout.block_tokens
    stride = max(STRIDE_TOKENS // block, 1) * block
    last_boundary = (total - 1) // block * block
    points = {*range(start // stride * stride + stride, last_boundary, stride), total - 1}
    if layout.recurrent:
        points |= {last_boundary, *shared}
    return tuple(sorted(point for point in points if start < point < total))


def can_wait(layout: Layout) -> bool:
    """Whether all that a row computes can still be cut later, when nobody waits for a token."""
    return not layout.recurrent and not layout.window


def prefill_is_due(layout: Layout, *, computed: int, total: int, pauses: Sequence[int]) -> bool:
    """Whether a row is to be stored at the end of this chunk.

    Windows are taken at every chunk's end: between two of them nothing else holds them.
    """
    if computed == total:
        return decode_is_due(layout, computed)
    if computed == total - 1 and can_wait(layout):
        return False  # its first token comes first
    return computed in pauses or layout.window > 0


def decode_is_due(layout: Layout, computed: int) -> bool:
    """Whether what does not grow is to be stored between two tokens; the rest can wait."""
    return not can_wait(layout) and computed % layout.block_tokens == 0


def last_seen(layout: Layout, *, shared: int, pauses: Sequence[int]) -> int:
    """The deepest point within `shared` tokens that can be restored once the row is past it."""
    if not layout.recurrent:
        return shared
    return max((pause for pause in pauses if pause <= shared), default=0)
