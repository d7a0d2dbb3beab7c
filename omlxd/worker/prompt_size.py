"""How large a prompt is at least, at a bounded cost.

Tokenising takes about a microsecond and up to a kilobyte of memory per token, so what cannot fit
the window is told apart before all of it is tokenised.
"""

from __future__ import annotations

from collections.abc import Callable

# A text this short is tokenised as a whole: its exact size is worth more than the time.
CHUNK_CHARACTERS = 1 << 16
# Of the usual scripts, no text that fits has more: it goes on without being counted first.
_BYTES_PER_TOKEN = 4
# A chunk alone may have so many tokens more than its part of the whole, at its two ends.
_CUT_TOKENS = 16


def tokens_at_least(text: str, count: Callable[[str], int], *, window: int) -> int | None:
    """Tokens that `text` has at least, if those alone overflow `window`; None = it may fit.

    `count` tokenises a text of up to CHUNK_CHARACTERS. It is called until the window is full, so
    the cost goes with the window and not with the text.
    """
    if len(text) <= CHUNK_CHARACTERS or len(text.encode()) <= window * _BYTES_PER_TOKEN:
        return None
    tokens = 0
    for start in range(0, len(text), CHUNK_CHARACTERS):
        tokens += max(0, count(text[start : start + CHUNK_CHARACTERS]) - _CUT_TOKENS)
        if tokens > window:
            return tokens
    return None
