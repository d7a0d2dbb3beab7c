"""The engine of language models: one thread that owns every MLX call of one model.

`load_engine` returns at once. The engine takes `submit`, `cancel` and the rest from the first
moment (queued until the weights are in), `facts` tells how the load ended, `ended` how the thread
ended. The thread ends on `stop()`, on a failed load, and when the model itself is broken.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

import mlx.core as mx

from omlxd.ipc.messages import CacheCommand, LiveSettings, LoadSettings
from omlxd.sched.scheduler import Bounds, Scheduler
from omlxd.worker.commands import Cancel, Configure, Inbox, Later, Stop, Submit
from omlxd.worker.generators import BatchLane
from omlxd.worker.lanes import Lane
from omlxd.worker.limits import (
    Limits,
    apply_limits,
    decide_limits,
    give_back,
    recommended_bytes,
)
from omlxd.worker.lm_load import Abilities, Loaded, load_weights, probe_abilities
from omlxd.worker.lm_solo import SoloLane
from omlxd.worker.loop import EngineLoop
from omlxd.worker.namespace import namespace
from omlxd.worker.pages import Pages
from omlxd.worker.ports import EngineFacts, EngineListener, LoadError, RowJob
from omlxd.worker.prefix_cache import PrefixCache
from omlxd.worker.prefixes import NoPrefixes, Prefixes

METAL_STEP_TOKENS = 2048
CPU_STEP_TOKENS = 256  # longer steps are slower there


class LmEngine:
    """One model under continuous batching; implements `ports.EngineRun`."""

    def __init__(self, load: LoadSettings, live: LiveSettings, listener: EngineListener) -> None:
        self.facts: Future[EngineFacts] = Future()  # else LoadError
        self.ended: Future[None] = Future()  # None after stop or a failed load; else what broke it
        self._load, self._live, self._listener = load, live, listener
        self._inbox: Inbox = Inbox()
        self._thread = threading.Thread(target=self._run, name="engine")

    def start(self) -> None:
        self._thread.start()

    def submit(self, rows: Sequence[RowJob]) -> None:
        self._inbox.put(Submit(rows))

    def cancel(self, request_id: str, index: int | None = None) -> None:
        self._inbox.put(Cancel(request_id, index))

    def configure(self, live: LiveSettings) -> None:
        self._inbox.put(Configure(live))

    def command_cache(self, command: CacheCommand) -> None:
        self._inbox.put(command)

    def stop(self) -> None:
        """End the thread after its present step and wait for it; running rows get no event."""
        self._inbox.put(Stop())
        self._thread.join()

    # ------------------------------------------------------------------ the engine thread

    def _run(self) -> None:
        broken: Exception | None = None
        try:
            self._serve()
        except Exception as error:
            if self.facts.done():
                broken = error
            else:
                self.facts.set_exception(_as_load_error(self._load, error))
        gc.collect()  # arrays go before the streams that made them
        mx.synchronize()
        mx.clear_streams()
        if broken is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(broken)

    def _serve(self) -> None:
        loaded = load_weights(self._load)
        abilities = probe_abilities(loaded.model)
        pages = Pages.inspect(loaded.model)
        shell = _Shell(loaded, abilities)
        scheduler = Scheduler(shell.bounds(self._live), abilities.cost)
        prefixes = self._open_prefixes(pages, scheduler)
        loop = EngineLoop(
            inbox=self._inbox,
            scheduler=scheduler,
            make_lane=shell.make_lane,
            bounds=shell.bounds,
            prefixes=prefixes,
            vocabulary=abilities.vocabulary,
            listener=self._listener,
            device=shell,
            clock=time.monotonic,
        )
        self.facts.set_result(
            EngineFacts(
                weights_bytes=loaded.weights_bytes,
                batches=abilities.batches,
                batch_reason=abilities.batch_reason,
                kv_bytes_per_token=abilities.cost.bytes_per_token,
                prefix_reuse=isinstance(pages, Pages),
                prefix_reuse_reason=pages if isinstance(pages, str) else "",
            )
        )
        try:
            loop.run()
        finally:
            prefixes.close()

    def _open_prefixes(self, pages: Pages | str, scheduler: Scheduler) -> Prefixes:
        load = self._load
        if isinstance(pages, str):
            return NoPrefixes(self._listener.on_cache)
        name = namespace(Path(load.path), block_tokens=load.block_tokens)
        cache = PrefixCache(
            pages,
            layout=pages.layout(load.block_tokens),
            namespace=name,
            cold_folder=Path(load.cold_dir) / name.hex() if load.cold_dir else None,
            post=lambda act: self._inbox.put(Later(act)),
            send=self._listener.on_cache,
            prefill_token_s=lambda: scheduler.pace.token_s,
            clock=time.monotonic,
        )
        cache.configure(self._live)
        cache.await_disk()
        return cache


class _Shell:
    """What the loop needs done to MLX, for one loaded model."""

    def __init__(self, loaded: Loaded, abilities: Abilities) -> None:
        self._loaded = loaded
        self._abilities = abilities
        self._limits = Limits(wired=None, memory=None, cache=None)
        self._step_tokens = METAL_STEP_TOKENS if mx.metal.is_available() else CPU_STEP_TOKENS

    def bounds(self, live: LiveSettings) -> Bounds:
        """Set MLX's limits to the share and tell the scheduler what is left of it."""
        share, weights = live.memory_share_bytes, self._loaded.weights_bytes
        self._limits = decide_limits(
            share_bytes=share, weights_bytes=weights, recommended_bytes=recommended_bytes()
        )
        apply_limits(self._limits)
        taken = weights + (self._limits.cache or 0) + live.hot_bytes
        budget = max(0, share - taken) if share else None
        return Bounds(
            max_rows=live.max_concurrent_requests if self._abilities.batches else 1,
            prefill_cap=live.prefill_step_tokens or self._step_tokens,
            kv_budget_bytes=budget,
        )

    def make_lane(self, number: int) -> Lane:
        if not self._abilities.batches:
            return SoloLane(self._loaded.model)
        lane = BatchLane(self._loaded.model, prefill_step=METAL_STEP_TOKENS)
        apply_limits(self._limits)  # the generator has just set the wired limit
        return lane

    def memory(self) -> tuple[int, int]:
        return mx.get_active_memory(), mx.get_cache_memory()

    def release(self) -> None:
        give_back()


def _as_load_error(load: LoadSettings, error: Exception) -> LoadError:
    if isinstance(error, LoadError):
        return error
    return LoadError(f"{load.model_id}: the first steps failed: {error}", permanent=False)


def load_engine(load: LoadSettings, live: LiveSettings, listener: EngineListener) -> LmEngine:
    """Start the engine thread; the weights load there. Never blocks, never raises."""
    engine = LmEngine(load, live, listener)
    engine.start()
    return engine
