"""A model that breaks: the request that breaks it fails alone, or the engine ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omlxd.errors import EngineFailed
from omlxd.ipc.messages import LiveSettings, LoadSettings
from omlxd.worker.lm_load import Loaded, load_weights
from omlxd.worker.loop import EngineBroken
from tests.support.engine import BreaksOn, EngineRig, solo

pytestmark = pytest.mark.mlx

CULPRIT = 1001
PROMPT = [(37 * n) % 900 + 10 for n in range(40)]


@pytest.fixture
def broken(tiny_models: Path, monkeypatch: pytest.MonkeyPatch) -> list[BreaksOn]:
    """The models that engines load from here on; each breaks on the culprit's token."""
    models: list[BreaksOn] = []

    def load(settings: LoadSettings) -> Loaded:
        loaded = load_weights(settings)
        models.append(BreaksOn(loaded.model, CULPRIT))
        return Loaded(models[-1], loaded.weights_bytes)

    monkeypatch.setattr("omlxd.worker.lm.load_weights", load)
    return models


def test_one_prompt_that_breaks_the_model_fails_alone(
    tiny_models: Path, broken: list[BreaksOn]
) -> None:
    """Rows that decode beside it lose no token; rows that prefill beside it are run again."""
    model = tiny_models / "tiny-llama"
    with EngineRig(model, LiveSettings(prefill_step_tokens=2048)) as rig:
        rig.submit("stream", PROMPT, max_tokens=40)
        rig.wait_for(lambda: len(rig.of("stream")) > 2)
        rig.submit("beside", PROMPT[:9], max_tokens=8)
        rig.submit("culprit", [*PROMPT[:9], CULPRIT, 5])
        rig.submit("later", PROMPT[:11], max_tokens=8)
        rig.wait("stream", "beside", "culprit", "later")
    assert list(rig.failed) == ["culprit"]
    assert isinstance(rig.failed["culprit"], EngineFailed)
    assert "kernel" in rig.failed["culprit"].message
    assert rig.ids("stream") == solo(model, PROMPT, 40)[0]
    assert rig.ids("beside") == solo(model, PROMPT[:9], 8)[0]
    assert rig.ids("later") == solo(model, PROMPT[:11], 8)[0]


def test_a_model_that_is_broken_fails_everything_and_ends_the_engine(
    tiny_models: Path, broken: list[BreaksOn]
) -> None:
    """Several streams break at once and nobody is to blame: the worker should be replaced."""
    with EngineRig(tiny_models / "tiny-llama", LiveSettings(max_concurrent_requests=2)) as rig:
        for name in ("a", "b"):
            rig.submit(name, PROMPT, max_tokens=5000)
        rig.submit("waiting", PROMPT)
        rig.wait_for(lambda: bool(rig.of("a") and rig.of("b")))
        broken[0].token = -1
        broken[0].model = _Raising()
        error = rig.engine.ended.exception(timeout=50)
    assert isinstance(error, EngineBroken)
    assert set(rig.failed) == {"a", "b", "waiting"}


class _Raising:
    def __call__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("device lost")
