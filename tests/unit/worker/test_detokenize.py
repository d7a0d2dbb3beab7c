"""Token ids to text: never half a character, never stuck, equal to decoding all at once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from omlxd.worker.detokenize import Decoding, Detokenizer, WindowDetokenizer
from tests.support.tokenizers import chat_tokenizer, sentencepiece_tokenizer

BYTE_LEVEL = chat_tokenizer()
SENTENCEPIECE = sentencepiece_tokenizer()
BROKEN = "\ufffd"


def decode(tokenizer: Any, tokens: list[int]) -> str:
    return str(
        tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    )


def window(tokenizer: Any) -> WindowDetokenizer:
    return WindowDetokenizer(lambda tokens: decode(tokenizer, tokens))


def stream(detokenizer: Detokenizer, tokens: list[int]) -> list[str]:
    return [*(detokenizer.feed(token) for token in tokens), detokenizer.flush()]


def byte_tokens(raw: bytes) -> list[int]:
    """One token for each byte."""
    return [int(SENTENCEPIECE.convert_tokens_to_ids(f"<0x{byte:02X}>")) for byte in raw]


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, SENTENCEPIECE], ids=["bytes", "pieces"])
@given(data=st.data())
def test_any_tokens_give_what_decoding_them_all_gives(tokenizer: Any, data: st.DataObject) -> None:
    """Any ids at all, special ones among them."""
    tokens = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=20))
    whole = decode(tokenizer, tokens)
    streamed = "".join(stream(Decoding(tokenizer).detokenizer(at_start=True), tokens))
    # A run of byte pieces that is broken anywhere is broken as a whole when decoded at once.
    assert streamed == whole or (tokenizer is SENTENCEPIECE and BROKEN in whole)


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, SENTENCEPIECE], ids=["bytes", "pieces"])
@given(text=st.text(st.characters(exclude_characters=BROKEN, exclude_categories=["Cs"])))
def test_text_comes_back_without_a_broken_character(tokenizer: Any, text: str) -> None:
    """No piece of a stream of valid text holds U+FFFD, with the table and with the window."""
    tokens = tokenizer.encode(text, add_special_tokens=False)
    for detokenizer in (Decoding(tokenizer).detokenizer(at_start=True), window(tokenizer)):
        pieces = stream(detokenizer, tokens)
        assert not any(BROKEN in piece for piece in pieces)
        assert "".join(pieces) == decode(tokenizer, tokens)


def test_a_character_shows_with_its_last_byte() -> None:
    """An emoji of four tokens is one piece of text, and pending until then."""
    detokenizer = Decoding(SENTENCEPIECE).detokenizer(at_start=False)
    pieces = [
        (detokenizer.feed(token), detokenizer.is_pending) for token in byte_tokens("😀".encode())
    ]
    assert pieces == [("", True), ("", True), ("", True), ("😀", False)]


def test_a_space_after_an_incomplete_character_breaks_it_in_place() -> None:
    """The bytes that can become no character are replaced as soon as that is known."""
    detokenizer = Decoding(SENTENCEPIECE).detokenizer(at_start=False)
    assert [detokenizer.feed(token) for token in byte_tokens(b"\xf0\x9f a")] == [
        "",
        "",
        BROKEN + " ",
        "a",
    ]


@pytest.mark.parametrize("kind", ["table", "window"])
def test_invalid_bytes_never_block_the_stream(kind: str) -> None:
    """A run of bytes that are no text shows while it goes on, not only at its end."""
    detokenizer = (
        Decoding(SENTENCEPIECE).detokenizer(at_start=False)
        if kind == "table"
        else window(SENTENCEPIECE)
    )
    shown = "".join(detokenizer.feed(token) for token in byte_tokens(b"\xff" * 20))
    assert len(shown) >= 16
    assert set(shown) == {BROKEN}


def test_the_end_replaces_an_incomplete_character() -> None:
    """Half a character at the very end is one U+FFFD."""
    for detokenizer in (Decoding(SENTENCEPIECE).detokenizer(at_start=False), window(SENTENCEPIECE)):
        for token in byte_tokens(b"a\xc3"):
            detokenizer.feed(token)
        assert detokenizer.flush().endswith(BROKEN)
        assert not detokenizer.is_pending


def test_the_leading_space_counts_only_when_the_text_goes_on() -> None:
    """A reply begins without the first piece's space, a continuation keeps it."""
    tokens = SENTENCEPIECE.encode("hello world", add_special_tokens=False)
    begins = "".join(stream(Decoding(SENTENCEPIECE).detokenizer(at_start=True), tokens))
    goes_on = "".join(stream(Decoding(SENTENCEPIECE).detokenizer(at_start=False), tokens))
    assert (begins, goes_on) == ("hello world", " hello world")


def test_a_special_token_is_not_the_first_piece() -> None:
    """The space of the piece after a leading special token is cut all the same."""
    tokens = [1, *SENTENCEPIECE.encode("hello", add_special_tokens=False)]
    assert "".join(stream(Decoding(SENTENCEPIECE).detokenizer(at_start=True), tokens)) == "hello"


def test_special_tokens_and_ids_beyond_the_vocabulary_have_no_text() -> None:
    """A padded embedding can draw an id that the tokenizer does not know."""
    tokens = [*BYTE_LEVEL.encode("hi"), 1, 5000]
    assert stream(Decoding(BYTE_LEVEL).detokenizer(at_start=True), tokens)[-3:] == ["", "", ""]
    assert Decoding(BYTE_LEVEL).of(1) == b""
    assert Decoding(BYTE_LEVEL).name(1) == b"<|im_start|>"


def metaspace_tokenizer() -> Any:
    names = ["▁a", "b", "▁", "▁▁c", "!"]
    tokenizer = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[]))
    tokenizer.decoder = decoders.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def wordpiece_tokenizer() -> Any:
    names = ["a", "##b", "c", "!"]
    tokenizer = Tokenizer(models.WordPiece(vocab={name: i for i, name in enumerate(names)}))
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


@pytest.mark.parametrize("make", [metaspace_tokenizer, wordpiece_tokenizer])
@given(tokens=st.lists(st.integers(0, 3), max_size=12))
def test_other_decoders_give_what_decoding_them_all_gives(make: Any, tokens: list[int]) -> None:
    """Metaspace works token by token, WordPiece goes through the window."""
    tokenizer = make()
    streamed = "".join(stream(Decoding(tokenizer).detokenizer(at_start=True), tokens))
    assert streamed == decode(tokenizer, tokens)
