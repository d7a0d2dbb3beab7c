"""A real engine over a tiny model, with everything it reports, and the solo run to compare with."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from omlxd.errors import OmlxError
from omlxd.ipc.messages import LiveSettings, LoadSettings
from omlxd.worker.lm import LmEngine, load_engine
from omlxd.worker.ports import (
    CacheFrame,
    EngineStats,
    ResolvedSampling,
    RowJob,
    RowUsage,
    TokenOut,
)

GREEDY = ResolvedSampling(temperature=0)
WAIT_S = 50.0

TINY_LLAMA4: dict[str, Any] = {
    "model_type": "llama4",
    "architectures": ["Llama4ForConditionalGeneration"],
    "text_config": {
        "model_type": "llama4_text",
        "attention_bias": False,
        "attention_chunk_size": 32,
        "head_dim": 16,
        "hidden_size": 64,
        "interleave_moe_layer_step": 2,
        "intermediate_size": 64,
        "intermediate_size_mlp": 128,
        "max_position_embeddings": 4096,
        "num_attention_heads": 4,
        "num_experts_per_tok": 1,
        "num_hidden_layers": 4,
        "num_key_value_heads": 2,
        "num_local_experts": 2,
        "rms_norm_eps": 1e-5,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "use_qk_norm": True,
        "vocab_size": 1024,
    },
}


class EngineRig:
    """Implements `EngineListener`; a context manager that stops the engine at its end."""

    def __init__(self, model: Path, live: LiveSettings | None = None, **load: Any) -> None:
        self.scheduled: list[str] = []
        self.tokens: list[TokenOut] = []
        self.usages: list[RowUsage] = []
        self.failed: dict[str, OmlxError] = {}
        self.stats: list[EngineStats] = []
        self.cache_frames: list[CacheFrame] = []
        self.threads: set[int] = set()
        self.on_token: Callable[[TokenOut], None] = lambda token: None
        self._ended: set[tuple[str, int]] = set()
        self._changed = threading.Condition()
        settings = LoadSettings(model_id=model.name, path=str(model), kind="llm", **load)
        self.engine: LmEngine = load_engine(settings, live or LiveSettings(), self)

    def __enter__(self) -> EngineRig:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.stop()
        assert self.engine.ended.done()

    def submit(self, name: str, prompt: Sequence[int], **fields: Any) -> None:
        self.submit_rows([self.job(name, prompt, **fields)])

    def submit_rows(self, rows: Sequence[RowJob]) -> None:
        self.engine.submit(rows)

    @staticmethod
    def job(
        name: str,
        prompt: Sequence[int],
        *,
        index: int = 0,
        max_tokens: int = 16,
        sampling: ResolvedSampling = GREEDY,
        stop_tokens: frozenset[int] = frozenset(),
        top_logprobs: int | None = None,
    ) -> RowJob:
        return RowJob(
            request_id=name,
            index=index,
            prompt=prompt,
            max_tokens=max_tokens,
            sampling=sampling,
            stop_tokens=stop_tokens,
            top_logprobs=top_logprobs,
        )

    def wait(self, *names: str) -> None:
        """Until these requests have ended: with a finish for row 0, or failed."""
        self.wait_for(
            lambda: all((name, 0) in self._ended or name in self.failed for name in names)
        )

    def wait_for(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, timeout=WAIT_S)

    def of(self, name: str, index: int = 0) -> list[TokenOut]:
        return [each for each in self.tokens if (each.request_id, each.index) == (name, index)]

    def ids(self, name: str, index: int = 0) -> list[int]:
        return [each.token for each in self.of(name, index)]

    # ------------------------------------------------------------------ EngineListener

    def on_scheduled(self, request_id: str) -> None:
        with self._changed:
            self.scheduled.append(request_id)
            self._changed.notify_all()

    def on_tokens(self, tokens: Sequence[TokenOut], ended: Sequence[RowUsage]) -> None:
        with self._changed:
            self.threads.add(threading.get_ident())
            self.tokens += tokens
            self.usages += ended
            self._ended |= {(each.request_id, each.index) for each in tokens if each.finish}
            for token in tokens:
                self.on_token(token)
            self._changed.notify_all()

    def on_failed(self, request_id: str, error: OmlxError) -> None:
        with self._changed:
            assert request_id not in self.failed
            self.failed[request_id] = error
            self._changed.notify_all()

    def on_stats(self, stats: EngineStats) -> None:
        with self._changed:
            self.stats.append(stats)
            self._changed.notify_all()

    def on_cache(self, frame: CacheFrame) -> None:
        with self._changed:
            self.cache_frames.append(frame)
            self._changed.notify_all()


def solo(
    model: Path, prompt: Sequence[int], count: int, *, processors: Sequence[Any] = ()
) -> tuple[list[int], list[Any]]:
    """Greedy tokens and their log-probability arrays from mlx-lm's own generator, alone."""
    import mlx.core as mx
    from mlx_lm.generate import generate_step

    steps = list(
        generate_step(
            mx.array(list(prompt)),
            loaded(model),
            max_tokens=count,
            prefill_step_size=64,
            logits_processors=list(processors) or None,
        )
    )
    return [token for token, _ in steps], [logprobs for _, logprobs in steps]


class BreaksOn:
    """A model that raises when its input holds a token, as a broken kernel would."""

    def __init__(self, model: Any, token: int) -> None:
        self.model, self.token, self.layers = model, token, model.layers
        self.armed = True

    def __call__(self, inputs: Any, cache: Any) -> Any:
        if self.armed and any(self.token in row for row in inputs.tolist()):
            raise RuntimeError("kernel")
        return self.model(inputs, cache=cache)

    def make_cache(self) -> Any:
        from mlx_lm.models.cache import make_prompt_cache

        return make_prompt_cache(self.model)

    def parameters(self) -> Any:
        return self.model.parameters()


_LOADED: dict[Path, Any] = {}


def loaded(model: Path) -> Any:
    """The model in this thread, loaded once."""
    from mlx_lm.utils import load_model

    if model not in _LOADED:
        _LOADED[model], _ = load_model(model)
    return _LOADED[model]


def make_llama4(folder: Path) -> Path:
    """A random model whose caches cannot be batched."""
    import mlx.core as mx
    from mlx.utils import tree_flatten, tree_map
    from mlx_lm.models import llama4

    mx.random.seed(3)
    model = llama4.Model(llama4.ModelArgs.from_dict(TINY_LLAMA4))
    lively = tree_map(
        lambda value: mx.random.normal(value.shape) * 0.2 if value.ndim > 1 else value,
        model.parameters(),
    )
    target = folder / "tiny-llama4"
    target.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(target / "model.safetensors"), dict(tree_flatten(lively)))
    (target / "config.json").write_text(json.dumps(TINY_LLAMA4))
    return target
