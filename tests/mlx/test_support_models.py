"""The model folders the other tests stand on."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlx_lm import generate, load

from tests.conftest import MakeScripted
from tests.support.models import TINY_LLMS

pytestmark = pytest.mark.mlx


@pytest.mark.parametrize("name", TINY_LLMS)
def test_tiny_models_load_and_vary_their_output(tiny_models: Path, name: str) -> None:
    """A tiny model loads through mlx-lm and does not repeat one token for ever."""
    model, tokenizer = load(str(tiny_models / name))
    text = generate(model, tokenizer, tokenizer.encode("def add(a, b):"), max_tokens=12)
    assert len(set(tokenizer.encode(text))) > 3


def test_a_scripted_model_says_its_script(scripted_model: MakeScripted) -> None:
    """The last character of the prompt chooses the script; raw bytes make up one character."""
    folder = scripted_model({"A": ["Hello", " world ", 0xF0, 0x9F, 0x98, 0x80], "B": ["no", "pe"]})
    model, tokenizer = load(str(folder))
    said = {key: generate(model, tokenizer, tokenizer.encode(key)) for key in "AB"}
    assert said == {"A": "Hello world 😀", "B": "nope"}
