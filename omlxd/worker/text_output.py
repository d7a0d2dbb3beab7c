"""From the tokens of one choice to its visible text: detokenise, then stop strings.

Streams and whole replies are made from the same deltas, so they are equal by construction.
"""

from __future__ import annotations

from collections.abc import Sequence

from omlxd.ipc.messages import Delta, Finished, TokenLogprob
from omlxd.worker.detokenize import Decoding
from omlxd.worker.logprobs import LogprobAligner, token_logprob
from omlxd.worker.ports import TokenOut
from omlxd.worker.stops import Scanned, StopScanner


class ChoiceOutput:
    """One choice of one request.

    A stop string ends it before the engine does: then the row has to be cancelled, and tokens
    that were under way are not to be fed.
    """

    def __init__(
        self,
        request_id: str,
        index: int,
        *,
        decoding: Decoding,
        stops: Sequence[str],
        echo: str = "",
        continues: bool = False,
        has_logprobs: bool = False,
    ) -> None:
        self.is_ended = False
        self.num_tokens = 0
        self._request_id, self._index = request_id, index
        self._decoding = decoding
        self._detokenizer = decoding.detokenizer(at_start=not continues)
        self._scanner = StopScanner(stops)
        self._logprobs = LogprobAligner() if has_logprobs else None
        self._at_start = not continues
        self._echo = echo
        self._num_decoded = 0  # characters
        self._num_told = 0  # tokens

    def feed(self, token: TokenOut) -> list[Delta | Finished]:
        """What becomes visible with this token; `Finished` is the last event of all."""
        assert not self.is_ended, "a choice that ended is fed no more"
        self.num_tokens += 1
        # A token that ended the row by "stop" is not part of the text.
        scanned = Scanned("") if token.finish == "stop" else self._scan(token)
        visible = scanned.text
        if scanned.stop is None and token.finish is not None:
            scanned = self._flush()
            visible += scanned.text
        events: list[Delta | Finished] = self._deltas(visible)
        reason = "stop" if scanned.stop is not None else token.finish
        if reason is not None:
            self.is_ended = True
            events.append(Finished(self._request_id, self._index, reason, scanned.stop))
        return events

    def _scan(self, token: TokenOut) -> Scanned:
        text = self._detokenizer.feed(token.token)
        self._num_decoded += len(text)
        if self._logprobs is not None:
            # Of a character that is not complete yet, this token is a part.
            end = self._num_decoded + self._detokenizer.is_pending
            self._logprobs.add(self._logprob(token), end=end)
        return self._scanner.feed(text)

    def _logprob(self, token: TokenOut) -> TokenLogprob:
        first, self._at_start = (
            self._at_start,
            self._at_start and not self._decoding.of(token.token),
        )
        names = [self._decoding.name(alternative) for alternative, _ in token.top]
        return token_logprob(token, shown=self._decoding.of(token.token, first=first), names=names)

    def _flush(self) -> Scanned:
        scanned = self._scanner.feed(self._detokenizer.flush())
        if scanned.stop is not None:
            return scanned
        rest = self._scanner.flush()
        return Scanned(scanned.text + rest.text, rest.stop)

    def _deltas(self, visible: str) -> list[Delta | Finished]:
        echo, self._echo = self._echo, ""
        deltas: list[Delta | Finished] = []
        if echo:
            deltas.append(Delta(self._request_id, self._index, echo, tokens=0))
        logprobs = None if self._logprobs is None else self._logprobs.show(visible)
        if visible or logprobs:
            tokens, self._num_told = self.num_tokens - self._num_told, self.num_tokens
            deltas.append(
                Delta(self._request_id, self._index, visible, tokens=tokens, logprobs=logprobs)
            )
        return deltas
