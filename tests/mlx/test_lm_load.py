"""What loading finds out, refuses and leaves behind."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from omlxd.errors import RequestInvalid
from omlxd.ipc.messages import LoadSettings
from omlxd.sched.footprint import KvCost
from omlxd.worker.lm_load import load_weights, probe_abilities
from omlxd.worker.ports import LoadError
from tests.support.engine import EngineRig, loaded, make_llama4

pytestmark = pytest.mark.mlx


def settings(path: Path, **fields: Any) -> LoadSettings:
    return LoadSettings(model_id="m", path=str(path), kind="llm", **fields)


@pytest.fixture
def copy(tiny_models: Path, tmp_path: Path) -> Path:
    """A tiny-llama of one's own."""
    return Path(shutil.copytree(tiny_models / "tiny-llama", tmp_path / "copy"))


def edit(folder: Path, **fields: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_the_cost_of_a_row_is_measured_per_kind_of_cache(tiny_models: Path) -> None:
    """Full layers grow, sliding ones up to their window, recurrent ones never."""
    float32, heads, width = 4, 2, 16
    layer = 2 * heads * width * float32
    llama = probe_abilities(loaded(tiny_models / "tiny-llama"))
    gemma = probe_abilities(loaded(tiny_models / "tiny-gemma3"))
    hybrid = probe_abilities(loaded(tiny_models / "tiny-qwen3-next"))
    assert llama.cost == KvCost(per_token=2 * layer)
    assert gemma.cost == KvCost(per_token=2 * layer, windows=((layer, 32), (layer, 32)))
    assert hybrid.cost.per_token == layer
    assert hybrid.cost.per_row > 0
    assert llama.vocabulary == 1024


def test_caches_that_cannot_merge_are_found_at_load(tmp_path: Path) -> None:
    """The reason names the class."""
    abilities = probe_abilities(loaded(make_llama4(tmp_path)))
    assert not abilities.batches
    assert abilities.batch_reason == "ChunkedKVCache has no merge"


def test_caches_that_fail_in_a_trial_batch_are_found_at_load(
    tiny_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Having the methods is not enough: a real round trip must pass."""
    from mlx_lm.models.cache import BatchKVCache

    def refuse(self: Any, other: Any) -> None:
        raise ValueError("shapes differ")

    monkeypatch.setattr(BatchKVCache, "extend", refuse)
    abilities = probe_abilities(loaded(tiny_models / "tiny-llama"))
    assert not abilities.batches
    assert "shapes differ" in abilities.batch_reason


@pytest.mark.parametrize(
    "fields",
    [{"model_file": "evil.py"}, {"auto_map": {"AutoModel": "evil.Model"}}],
    ids=["model_file", "auto_map"],
)
def test_a_folder_that_brings_code_is_refused_unless_trusted(
    copy: Path, fields: dict[str, Any]
) -> None:
    """The code is not run; the message names the key to set."""
    (copy / "evil.py").write_text(
        "from pathlib import Path\nPath(__file__).with_name('ran').touch()"
    )
    edit(copy, **fields)
    with pytest.raises(LoadError, match="trust_remote_code = true") as caught:
        load_weights(settings(copy))
    assert caught.value.permanent
    assert not (copy / "ran").exists()


def test_a_trusted_folder_may_bring_code(copy: Path) -> None:
    """An auto_map that mlx-lm does not need is no reason to fail then."""
    edit(copy, auto_map={"AutoModel": "its.Model"})
    assert load_weights(settings(copy, trust_remote_code=True)).weights_bytes > 0


def test_weights_bytes_are_what_the_arrays_occupy(copy: Path) -> None:
    """float32: four bytes a parameter, as in the file less its header."""
    weights_bytes = load_weights(settings(copy)).weights_bytes
    file_bytes = (copy / "model.safetensors").stat().st_size
    assert file_bytes - 16_384 < weights_bytes < file_bytes


@pytest.mark.parametrize(
    "damage", ["no config", "no weights", "cut weights", "other type", "shape"]
)
def test_a_folder_that_cannot_be_loaded_says_so_and_why(copy: Path, damage: str) -> None:
    """All of these stay so until the files change."""
    weights = copy / "model.safetensors"
    match damage:
        case "no config":
            (copy / "config.json").unlink()
        case "no weights":
            weights.unlink()
        case "cut weights":
            weights.write_bytes(weights.read_bytes()[:100_000])
        case "other type":
            edit(copy, model_type="nothing_of_that_name")
        case "shape":
            edit(copy, hidden_size=128)
    with pytest.raises(LoadError, match="copy") as caught:
        load_weights(settings(copy))
    assert caught.value.permanent


def test_a_failed_load_ends_the_engine(tmp_path: Path) -> None:
    """`facts` holds the reason; `stop` still returns."""
    with EngineRig(tmp_path / "missing") as rig:
        error = rig.engine.facts.exception(timeout=50)
        assert isinstance(error, LoadError)
        assert rig.engine.ended.exception(timeout=50) is None


def test_commands_given_before_the_weights_are_in_are_kept(tiny_models: Path) -> None:
    """Submit and cancel right after the start; what is bad is refused then too."""
    with EngineRig(tiny_models / "tiny-qwen3-next") as rig:
        rig.submit("gone", [1, 2, 3])
        rig.submit("a", [1, 2, 3], max_tokens=4)
        rig.submit("beyond", [1, 1024])
        rig.engine.cancel("gone")
        rig.wait("a", "beyond")
    assert len(rig.ids("a")) == 4
    assert rig.ids("gone") == []
    assert isinstance(rig.failed["beyond"], RequestInvalid)


PROGRAM = """
import sys
from pathlib import Path
from tests.support.engine import EngineRig
with EngineRig(Path(sys.argv[1])) as rig:
    for index in range(3):
        rig.submit(f"r{index}", [5, 6, 7 + index], max_tokens=8)
    rig.submit("running", [9] * 50, max_tokens=100000)
    rig.wait("r0", "r1", "r2")
"""


@pytest.mark.parametrize("attempt", range(2))
def test_a_process_that_ran_the_engine_exits_cleanly(tiny_models: Path, attempt: int) -> None:
    """Stopped with a request under way; MLX aborts at exit when a thread left streams behind."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tiny_models / "tiny-llama")],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
