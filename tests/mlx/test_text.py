"""The text side over real model folders: tokenizer, template, window, ends of turn, defaults."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from omlxd.errors import RequestInvalid
from omlxd.ipc.messages import GenerateRequest, LiveSettings, LoadSettings, Sampling
from omlxd.worker.accept import accept
from omlxd.worker.ports import LoadError
from omlxd.worker.text_model import TextModel, load_text_model
from tests.conftest import MakeScripted
from tests.support.models import EOS_TOKENS, TINY_LLMS, VOCABULARY

pytestmark = pytest.mark.mlx
MESSAGES = [{"role": "user", "content": "hi"}]


def load(folder: Path, **settings: Any) -> TextModel:
    return load_text_model(
        LoadSettings(model_id=folder.name, path=str(folder), kind="llm", **settings)
    )


@pytest.fixture
def folder(tiny_models: Path, tmp_path: Path) -> Path:
    """A tiny model's folder that a test may change."""
    return Path(shutil.copytree(tiny_models / "tiny-llama", tmp_path / "tiny"))


def change(path: Path, **values: Any) -> None:
    """None takes a key away."""
    new = json.loads(path.read_text()) | values
    path.write_text(json.dumps({key: value for key, value in new.items() if value is not None}))


def prompt(model: TextModel) -> str:
    request = GenerateRequest(request_id="r", model="tiny", messages=MESSAGES)
    job = accept(request, model=model, live=LiveSettings()).rows[0]
    return str(model.tokenizer.decode(list(job.prompt)))


@pytest.mark.parametrize("name", TINY_LLMS)
def test_every_tiny_model_can_be_read(tiny_models: Path, name: str) -> None:
    """Window, vocabulary and ends of turn come from the folder's files."""
    model = load(tiny_models / name)
    assert (model.window, model.vocabulary) == (32768, VOCABULARY)
    assert model.stop_tokens == frozenset(EOS_TOKENS)
    assert prompt(model) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def test_a_scripted_models_prompt_ends_with_the_key(scripted_model: MakeScripted) -> None:
    """The last character of the last message stands at the very end."""
    assert prompt(load(scripted_model({"A": ["x y"]}))) == "user: hi"


def test_the_specs_template_replaces_the_models(folder: Path) -> None:
    """chat_template is the text of a template."""
    assert prompt(load(folder, chat_template="{{ messages[0].content }}!")) == "hi!"


def test_a_folder_without_a_template_serves_prompts_only(folder: Path) -> None:
    """Messages are refused with what to do instead."""
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(RequestInvalid, match="/v1/completions"):
        prompt(load(folder))


def test_defaults_come_from_the_generation_config(folder: Path) -> None:
    """The file's sampling values are the model's own defaults."""
    change(folder / "generation_config.json", temperature=0.6, top_k=20)
    assert load(folder).sampling == Sampling(temperature=0.6, top_k=20)


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [
        ({"eos_token_id": 7}, {"eos_token_id": 5}, {7, 2}),
        ({"eos_token_id": None}, {"eos_token_id": [5, 6]}, {5, 6, 2}),
        (
            {"eos_token_id": None},
            {"eos_token_id": None, "text_config": {"eos_token_id": 9}},
            {9, 2},
        ),
    ],
)
def test_ends_of_turn_have_an_order_of_files(
    folder: Path, generation: dict[str, Any], config: dict[str, Any], expected: set[int]
) -> None:
    """generation_config.json before config.json before its text part; the tokenizer's always."""
    change(folder / "generation_config.json", **generation)
    change(folder / "config.json", **config)
    assert load(folder).stop_tokens == expected


def test_the_window_falls_back_to_the_tokenizers(folder: Path) -> None:
    """A config that names no window: the tokenizer may know one, else there is a bound."""
    change(folder / "config.json", max_position_embeddings=None)
    change(folder / "tokenizer_config.json", model_max_length=777)
    assert load(folder).window == 777
    change(folder / "tokenizer_config.json", model_max_length=None)
    assert load(folder).window == 1_048_576


def test_a_long_prompt_is_no_warning(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The window is checked here, so the library has nothing to say about lengths."""
    change(folder / "tokenizer_config.json", model_max_length=4)
    assert len(load(folder).tokenizer.encode("one two three four five six")) > 4
    assert "longer than" not in capfd.readouterr().err


def test_a_loaded_tokenizer_is_not_changed_any_more(folder: Path) -> None:
    """Two threads use it: truncation and padding that its file asks for are off from the start."""
    long = "one two three four five six"
    tokens = load(folder).tokenizer.encode(long)
    file = folder / "tokenizer.json"
    asks = Tokenizer.from_file(str(file))
    asks.enable_truncation(4)
    asks.enable_padding(length=4)
    asks.save(str(file))
    tokenizer = load(folder).tokenizer
    backend = tokenizer.backend_tokenizer
    assert (backend.truncation, backend.padding) == (None, None)
    assert tokenizer.encode(long) == tokens


def test_one_thread_encodes_while_another_decodes(folder: Path) -> None:
    """Neither disturbs the other."""
    model = load(folder)
    text = "one two three, four five six. " * 200
    tokens = model.tokenizer.encode(text)
    with ThreadPoolExecutor(max_workers=1) as accept_thread:
        encoded = [accept_thread.submit(model.tokenizer.encode, text) for _ in range(20)]
        while not encoded[-1].done():
            assert model.decoding.text(tokens) == text
            detokenizer = model.decoding.detokenizer(at_start=True)
            assert "".join(map(detokenizer.feed, tokens)) + detokenizer.flush() == text
    assert all(future.result() == tokens for future in encoded)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", "{"),
        ("config.json", "[]"),
        ("generation_config.json", "nonsense"),
        ("tokenizer.json", "{}"),
    ],
)
def test_a_broken_file_is_a_permanent_failure(folder: Path, file: str, content: str) -> None:
    """Loading again cannot help until the files change; the message names the folder."""
    (folder / file).write_text(content)
    with pytest.raises(LoadError) as failed:
        load(folder)
    assert failed.value.permanent
    assert str(folder) in str(failed.value)


def test_code_of_the_folder_runs_only_when_trusted(folder: Path) -> None:
    """A tokenizer class of the folder's own is refused without trust_remote_code."""
    (folder / "evil.py").write_text("raise SystemExit('ran')")
    change(
        folder / "tokenizer_config.json",
        tokenizer_class="Evil",
        auto_map={"AutoTokenizer": ["evil.Evil", None]},
    )
    with pytest.raises(LoadError, match="trust_remote_code"):
        load(folder)
