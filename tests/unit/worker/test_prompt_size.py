"""What cannot fit is told from what may, without tokenising all of it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omlxd.worker.prompt_size import CHUNK_CHARACTERS, tokens_at_least
from tests.support.tokenizers import sentencepiece_tokenizer, text_model

TOKENIZERS = {"bytes": text_model().tokenizer, "pieces": sentencepiece_tokenizer()}


class Counter:
    """Tokens of what it is given, and how many characters that were."""

    def __init__(self, tokenizer: str = "bytes") -> None:
        self._tokenizer = TOKENIZERS[tokenizer]
        self.characters = 0

    def __call__(self, text: str) -> int:
        self.characters += len(text)
        return len(self._tokenizer.encode(text, add_special_tokens=False))


@pytest.mark.parametrize("letter", ["x", " ", "é", "日", "hello world "])
def test_the_cost_goes_with_the_window_and_not_with_the_text(letter: str) -> None:
    """Ten million characters are refused after the first chunk."""
    counter = Counter()
    tokens = tokens_at_least(letter * (10_000_000 // len(letter)), counter, window=1000)
    assert tokens is not None
    assert tokens > 1000
    assert counter.characters == CHUNK_CHARACTERS


def test_a_text_that_may_fit_is_not_counted() -> None:
    """Short ones, and those of few bytes for the window, cost nothing here."""
    counter = Counter()
    assert tokens_at_least("x" * CHUNK_CHARACTERS, counter, window=8) is None
    assert tokens_at_least("x" * 400_000, counter, window=100_000) is None
    assert counter.characters == 0


def test_a_long_text_of_long_tokens_fits() -> None:
    """Nothing is refused for its length: a text of few tokens goes on."""
    assert tokens_at_least("x" * 1_000_000, lambda text: len(text) // 128, window=8000) is None
    assert tokens_at_least("x" * 1_100_000, lambda text: len(text) // 128, window=8000)


@pytest.mark.parametrize("tokenizer", list(TOKENIZERS))
@settings(max_examples=15)
@given(pattern=st.text(st.sampled_from("hello wrd.\n é日"), min_size=1, max_size=12))
def test_it_never_says_more_than_there_are(tokenizer: str, pattern: str) -> None:
    """Cuts in the middle of words and runs do not add up to a refusal of what fits."""
    text = (pattern * (CHUNK_CHARACTERS // len(pattern) + 1))[: CHUNK_CHARACTERS + 500]
    counter = Counter(tokenizer)
    exact = counter(text)
    least = tokens_at_least(text, counter, window=500)
    assert least is None or least <= exact
    assert tokens_at_least(text, counter, window=exact) is None
