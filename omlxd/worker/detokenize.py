"""Token ids to text, one token at a time, never half a character.

Most decoders work token by token: the bytes of a token depend only on whether it is the first one.
For these a token is looked up in a table of bytes, and the bytes go through the standard library's
incremental UTF-8 decoder. That one waits for a character to be complete, and replaces what can
never become one at once, as `str.decode` does. All other decoders run over a sliding window.

Special tokens have no text.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Collection
from typing import Any, Protocol

from tokenizers import pre_tokenizers

# A character has at most four bytes, so an ending still broken after four tokens stays broken.
_HOLD_TOKENS = 4
_REPLACEMENT = "\ufffd"
_ANCHOR = "a"


class Detokenizer(Protocol):
    """The text of one choice."""

    @property
    def is_pending(self) -> bool:
        """The tokens fed so far end inside a character."""
        ...

    def feed(self, token: int) -> str:
        """The text this token completes."""
        ...

    def flush(self) -> str:
        """The end: what is still incomplete becomes U+FFFD."""
        ...


class TokenBytes(Protocol):
    """The bytes that single tokens stand for."""

    def of(self, token: int, *, first: bool = False) -> bytes: ...


class PieceTable:
    """`TokenBytes` of a decoder that works token by token; filled as tokens are met."""

    def __init__(
        self,
        to_token: Callable[[int], str | None],
        *,
        to_bytes: Callable[[str, bool], bytes],
        special: Collection[int],
    ) -> None:
        self._to_token, self._to_bytes, self._special = to_token, to_bytes, special
        self._inner: dict[int, bytes] = {}

    def of(self, token: int, *, first: bool = False) -> bytes:
        if first:
            return self._read(token, first=True)
        piece = self._inner.get(token)
        if piece is None:
            piece = self._inner[token] = self._read(token, first=False)
        return piece

    def _read(self, token: int, *, first: bool) -> bytes:
        # A model's vocabulary may be padded beyond the tokenizer's: such an id has no text.
        name = None if token in self._special else self._to_token(token)
        return b"" if name is None else self._to_bytes(name, first)


class PieceDetokenizer:
    """Table look-up and incremental UTF-8. `at_start`: the rule for first tokens applies."""

    def __init__(self, table: TokenBytes, *, at_start: bool) -> None:
        self._table, self._at_start = table, at_start
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def is_pending(self) -> bool:
        return bool(self._utf8.getstate()[0])

    def feed(self, token: int) -> str:
        if not self._at_start:
            return self._utf8.decode(self._table.of(token))
        if self._table.of(token):  # a special token is not a first one
            self._at_start = False
        return self._utf8.decode(self._table.of(token, first=True))

    def flush(self) -> str:
        return self._utf8.decode(b"", final=True)


class WindowDetokenizer:
    """Any tokenizer: decodes the last few tokens with and without the new one, and compares."""

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._window: list[int] = []
        self._num_shown = 0  # tokens at the start of the window whose text is out
        self._shown = ""  # their text

    @property
    def is_pending(self) -> bool:
        return len(self._window) > self._num_shown

    def feed(self, token: int) -> str:
        self._window.append(token)
        text = self._decode(self._window)
        held = len(self._window) - self._num_shown
        if text.endswith(_REPLACEMENT) and held < _HOLD_TOKENS:
            return ""
        return self._show(text)

    def flush(self) -> str:
        return self._show(self._decode(self._window)) if self.is_pending else ""

    def _show(self, text: str) -> str:
        new = text[len(self._shown) :]
        # The tokens just shown stay as context: they decide on the next one's leading space.
        self._window = self._window[self._num_shown :]
        self._num_shown, self._shown = len(self._window), self._decode(self._window)
        return new


class Decoding:
    """Makes the detokenizers of one transformers tokenizer, and knows the bytes of its tokens.

    The text equals `tokenizer.decode(ids, skip_special_tokens=True,
    clean_up_tokenization_spaces=False)` wherever that is valid text: the clean-up would drop
    spaces before punctuation, which breaks code. Special tokens that are `shown` have their own
    text: they are marks, which are read from it.
    """

    def __init__(self, tokenizer: Any, *, shown: Collection[str] = ()) -> None:
        self._special = frozenset(
            index for index, name in special_tokens(tokenizer).items() if name not in shown
        )
        self._tokenizer = tokenizer
        backend = getattr(tokenizer, "backend_tokenizer", None)
        to_bytes = _token_wise(getattr(backend, "decoder", None))
        self._table: PieceTable | None = None
        if backend is not None and to_bytes is not None:
            self._table = PieceTable(backend.id_to_token, to_bytes=to_bytes, special=self._special)

    def detokenizer(self, *, at_start: bool) -> Detokenizer:
        """`at_start` = False when the text goes on from a prompt, so a leading space counts."""
        if self._table is not None:
            return PieceDetokenizer(self._table, at_start=at_start)
        return WindowDetokenizer(self._decode)

    def of(self, token: int, *, first: bool = False) -> bytes:
        """The bytes of one token; a special one has none."""
        if self._table is not None:
            return self._table.of(token, first=first)
        return b"" if token in self._special else self._decode([token]).encode()

    def name(self, token: int) -> bytes:
        """As `of`, but a special token is named by its own text."""
        shown = self.of(token)
        return shown or str(self._tokenizer.decode([token], skip_special_tokens=False)).encode()

    def text(self, tokens: list[int]) -> str:
        return self._decode(tokens)

    def _decode(self, tokens: list[int]) -> str:
        return str(
            self._tokenizer.decode(
                [token for token in tokens if token not in self._special],
                skip_special_tokens=False,
                clean_up_tokenization_spaces=False,
            )
        )


def special_tokens(tokenizer: Any) -> dict[int, str]:
    """Names of a transformers tokenizer's special tokens, by id."""
    added = tokenizer.added_tokens_decoder.items()
    named = {index: str(token.content) for index, token in added if token.special}
    ids = tokenizer.all_special_ids
    return named | dict(zip(ids, map(str, tokenizer.convert_ids_to_tokens(ids)), strict=True))


def _token_wise(decoder: Any) -> Callable[[str, bool], bytes] | None:
    """How a decoder of the tokenizers library turns one token into bytes; None = not that kind."""
    if decoder is None:
        return None
    steps = _steps(json.loads(decoder.__getstate__()))
    kinds = {step["type"] for step in steps}
    if kinds == {"ByteLevel"}:
        return _byte_level
    if not kinds <= {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}:
        return None
    if any(not _is_token_wise(step) for step in steps):
        return None
    has_bytes = "ByteFallback" in kinds

    def read(token: str, first: bool) -> bytes:
        byte = _fallback_byte(token) if has_bytes else None
        if byte is not None and (byte >= 0x80 or not first):
            return bytes([byte])
        if first:
            return str(decoder.decode([token])).encode()
        return str(decoder.decode([_ANCHOR, token])).removeprefix(_ANCHOR).encode()

    return read


def _steps(decoder: dict[str, Any]) -> list[dict[str, Any]]:
    if decoder["type"] != "Sequence":
        return [decoder]
    return [step for part in decoder["decoders"] for step in _steps(part)]


def _is_token_wise(step: dict[str, Any]) -> bool:
    if step["type"] == "Replace":  # a longer pattern could match across two tokens
        return len(step["pattern"].get("String", "")) == 1
    return bool(step["type"] != "Strip" or step["stop"] == 0)  # the end is known too late


def _fallback_byte(token: str) -> int | None:
    """SentencePiece writes a byte that belongs to no piece as a token `<0x0A>`."""
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        try:
            return int(token[3:5], 16)
        except ValueError:
            return None
    return None


def _byte_characters() -> dict[str, int]:
    """Printable bytes stand for themselves; the others, in order, have characters from 256 up."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    own = {character: ord(character) for character in alphabet if ord(character) < 256}
    others = (byte for byte in range(256) if chr(byte) not in own)
    return own | dict(zip(alphabet[len(own) :], others, strict=True))


_BYTES = _byte_characters()


def _byte_level(token: str, first: bool) -> bytes:
    try:
        return bytes([_BYTES[character] for character in token])
    except KeyError:  # an added token that is written as it is
        return token.encode()
