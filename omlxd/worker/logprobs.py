"""Log-probabilities in step with the text: a token's entry goes out with its last character."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from omlxd.ipc.messages import TokenLogprob
from omlxd.worker.ports import TokenOut


class LogprobAligner:
    """The entries of one choice. Positions count characters of the choice's decoded text."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, TokenLogprob]] = deque()
        self._num_visible = 0

    def add(self, entry: TokenLogprob, *, end: int) -> None:
        """`end` = how many characters are decoded when all of the token's are."""
        self._waiting.append((end, entry))

    def show(self, length: int, *, held: int) -> list[TokenLogprob]:
        """Entries of the tokens that are wholly out once so many characters more are, of which
        the last are `held` back.
        """
        self._num_visible += length
        ready = []
        while self._waiting and self._waiting[0][0] <= self._num_visible - held:
            ready.append(self._waiting.popleft()[1])
        return ready


def token_logprob(token: TokenOut, *, shown: bytes, names: Sequence[bytes]) -> TokenLogprob:
    """`shown`: the bytes the token adds to the text; `names`: the bytes of its alternatives."""
    top = [
        (_text(name), logprob, name) for name, (_, logprob) in zip(names, token.top, strict=True)
    ]
    return TokenLogprob(_text(shown), token.logprob, shown, top)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
