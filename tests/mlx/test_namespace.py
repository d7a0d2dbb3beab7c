"""What changes a model's namespace, and what does not."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest

from omlxd.models.weights import WeightsUnreadable, read_header
from omlxd.worker import namespace as module
from omlxd.worker.namespace import SAMPLE_BYTES, namespace

pytestmark = pytest.mark.mlx


@pytest.fixture
def model(tiny_models: Path, tmp_path: Path) -> Path:
    """A copy to be changed, with the times of the original."""
    return Path(shutil.copytree(tiny_models / "tiny-llama", tmp_path / "model"))


def name(model: Path) -> bytes:
    return namespace(model, block_tokens=64)


def test_it_is_the_same_every_time_and_everywhere(tiny_models: Path, model: Path) -> None:
    """Another folder with the same files has the same blocks."""
    assert name(model) == name(model) == name(tiny_models / "tiny-llama")
    assert len(name(model)) == 32


def other_value(model: Path) -> None:
    """One value at the start of one tensor, in a file of equal size and time."""
    path = model / "model.safetensors"
    facts = path.stat()
    with path.open("r+b") as file:
        file.seek(read_header(path).spans[3][0])
        file.write(b"\1\2\3\4")
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (facts.st_size, facts.st_mtime_ns)


def other_time(model: Path) -> None:
    os.utime(model / "model.safetensors", ns=(1, 1))


def other_config(model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"rope_theta": 5e5}, indent=1))


def other_tokenizer(model: Path) -> None:
    path = model / "tokenizer.json"
    path.write_text(path.read_text().replace("<think>", "<thunk>"))


def one_more_shard(model: Path) -> None:
    mx.save_safetensors(str(model / "model-2.safetensors"), {"x": mx.zeros(1)})


@pytest.mark.parametrize(
    "change", [other_value, other_time, other_config, other_tokenizer, one_more_shard]
)
def test_what_changes_the_kv_changes_the_name(model: Path, change: Callable[[Path], None]) -> None:
    """Weights, configuration and vocabulary, each alone."""
    before = name(model)
    change(model)
    assert name(model) != before


def test_the_form_of_blocks_changes_the_name(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their length, how they are packed, and the library that computed them."""
    names = {name(model), namespace(model, block_tokens=128)}
    monkeypatch.setattr(module, "LAYOUT_VERSION", 99)
    names.add(name(model))
    monkeypatch.setattr(module.mlx_lm, "__version__", "99")
    names.add(name(model))
    assert len(names) == 4


def test_chat_templates_do_not_change_the_name(model: Path) -> None:
    """The same tokens have the same KV however they were written."""
    before = name(model)
    (model / "chat_template.jinja").write_text("other")
    config = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": "other"}))
    (model / "README.md").write_text("other")
    assert name(model) == before


def test_little_is_read_of_large_weights(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each tensor a few kilobytes, whatever its size."""
    mx.save_safetensors(str(model / "large.safetensors"), {"a": mx.zeros((64 << 18,))})
    read: list[int] = []
    pread = os.pread

    def counted(descriptor: int, count: int, offset: int) -> bytes:
        read.append(count)
        return pread(descriptor, count, offset)

    monkeypatch.setattr(os, "pread", counted)
    name(model)
    assert max(read) == SAMPLE_BYTES
    assert sum(read) < 1 << 20


def test_weights_that_are_cut_short_have_no_name(model: Path) -> None:
    """Better no cold tier than blocks under a wrong name."""
    path = model / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(WeightsUnreadable, match="cut short"):
        name(model)
    (model / "config.json").unlink()
    with pytest.raises(FileNotFoundError):
        name(model)
