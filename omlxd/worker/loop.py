"""The engine thread's loop: take commands, schedule, step, emit.

It owns every row's job and output. It blocks on the inbox while nothing runs and looks into it
between steps otherwise. It knows no MLX: lanes step, the scheduler decides, `reuse` knows what of
a row need not be run.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from omlxd.errors import EngineFailed, OmlxError, RequestInvalid
from omlxd.ipc.messages import CacheCommand, LiveSettings, PrefixMatch
from omlxd.sched.rows import RowKey, RowSpec
from omlxd.sched.scheduler import Bounds, Insertion, LaneStep, Scheduler
from omlxd.worker.commands import Cancel, Command, Configure, Inbox, Later, Stop, Submit
from omlxd.worker.lanes import Device, Drawn, Lane, StepFault, StepOutcome
from omlxd.worker.ports import EngineListener, EngineStats, RowJob, RowUsage, TokenOut
from omlxd.worker.prefixes import Prefixes
from omlxd.worker.reuse import Reuse

STATS_INTERVAL_S = 1.0
GATHER_S = 0.003  # longest pause between requests that count as sent together
REST_AFTER_S = 0.25  # a session's next turn often comes at once, and needs the memory again
FAULTS_IN_A_ROW = 3  # broken steps without a good one between: it is the model, not the requests


class EngineBroken(Exception):
    """Steps break and no single request can be blamed; the process should end."""


@dataclass(slots=True)
class _Run:
    """One row from its submission to its end."""

    job: RowJob
    tokens: list[int]  # prompt and output
    max_tokens: int = 0  # set at insertion
    usage: RowUsage | None = None  # set at its first insertion

    @property
    def drawn(self) -> int:
        return len(self.tokens) - len(self.job.prompt)


@dataclass(slots=True)
class _Rates:
    """Tokens and seconds since the last report."""

    since: float
    prefill_tokens: int = 0
    decode_tokens: int = 0


class EngineLoop:
    """Runs on the engine thread. `make_lane(number)` and `bounds(live)` reach MLX for it."""

    def __init__(
        self,
        *,
        inbox: Inbox,
        scheduler: Scheduler,
        make_lane: Callable[[int], Lane],
        bounds: Callable[[LiveSettings], Bounds],
        prefixes: Prefixes,
        vocabulary: int,
        listener: EngineListener,
        device: Device,
        clock: Callable[[], float],
    ) -> None:
        self._inbox = inbox
        self._scheduler = scheduler
        self._make_lane = make_lane
        self._bounds = bounds
        self._prefixes = prefixes
        self._reuse = Reuse(prefixes, scheduler)
        self._vocabulary = vocabulary
        self._listener = listener
        self._device = device
        self._clock = clock
        self._lanes: dict[int, Lane] = {}
        self._runs: dict[RowKey, _Run] = {}
        self._unscheduled: set[str] = set()  # requests of which no row was inserted yet
        self._rates = _Rates(clock())
        self._faults = 0
        self._idle_since: float | None = None
        self._rested = False

    def run(self) -> None:
        """Return on Stop; raise EngineBroken, after every request has been failed."""
        while self._take_commands():
            self._pass()
        self._reuse.close()

    # ------------------------------------------------------------------ commands

    def _take_commands(self) -> bool:
        """Everything that has come in; waits for the first if there is nothing to run.

        Requests sent together arrive a moment apart: work after a rest begins with all of them.
        """
        gather_s = 0.0
        while not self._scheduler.has_work:
            gather_s = GATHER_S
            waits = [self._rest() if self._scheduler.is_idle else None, self._tend()]
            try:
                command = self._inbox.get(
                    timeout=min([each for each in waits if each is not None], default=None)
                )
            except queue.Empty:
                continue  # the cache has something to do, or it is time to rest
            if not self._apply(command):
                return False
        while True:
            try:
                command = self._inbox.get(block=gather_s > 0, timeout=gather_s or None)
            except queue.Empty:
                return True
            if not self._apply(command):
                return False

    def _tend(self) -> float | None:
        wait_s = self._prefixes.tend(self._clock())
        self._reuse.release_arrived()
        return 0.0 if self._scheduler.has_work else wait_s

    def _apply(self, command: Command) -> bool:
        match command:
            case Stop():
                return False
            case Submit(rows):
                self._submit(rows)
            case Cancel(request_id, index):
                self._forget(request_id, index)
            case Configure(live):
                self._scheduler.configure(self._bounds(live))
                self._freeing(lambda: self._prefixes.configure(live))
            case CacheCommand():
                self._freeing(lambda: self._prefixes.command(command))
            case Later(act):
                act()
                self._reuse.release_arrived()
        return True

    def _freeing(self, act: Callable[[], None]) -> None:
        """Blocks that go make room for other processes too, and not only at the next rest."""
        held, _ = self._device.memory()
        act()
        if self._device.memory()[0] < held:
            self._device.release()

    def _submit(self, rows: Sequence[RowJob]) -> None:
        request_id = rows[0].request_id
        error = next((bad for job in rows if (bad := self._invalid(job)) is not None), None)
        if error is not None:
            self._listener.on_failed(request_id, error)
            return
        specs = []
        for job in rows:
            key = RowKey(job.request_id, job.index)
            self._runs[key] = _Run(job, list(job.prompt))
            specs.append(RowSpec(key=key, prompt_tokens=len(job.prompt), max_tokens=job.max_tokens))
        self._unscheduled.add(request_id)
        self._scheduler.submit(specs)
        for spec in specs:
            self._reuse.submitted(spec.key, self._runs[spec.key].tokens)

    def _invalid(self, job: RowJob) -> RequestInvalid | None:
        """Token ids outside the vocabulary would read and write outside the model's arrays."""
        for param, tokens in (("prompt", job.prompt), ("logit_bias", job.sampling.logit_bias)):
            if tokens and not (min(tokens) >= 0 and max(tokens) < self._vocabulary):
                return RequestInvalid(
                    f"{param} holds a token id that this model does not have; its ids are 0 to"
                    f" {self._vocabulary - 1}",
                    param=param,
                )
        return None

    def _forget(self, request_id: str, index: int | None = None) -> None:
        self._scheduler.cancel(request_id, index)
        for key in [key for key in self._runs if key.request_id == request_id]:
            if index in (None, key.index):
                del self._runs[key]
                self._reuse.forget(key)
        if not any(key.request_id == request_id for key in self._runs):
            self._unscheduled.discard(request_id)

    def _fail(self, request_id: str, error: OmlxError) -> None:
        self._forget(request_id)
        self._listener.on_failed(request_id, error)

    # ------------------------------------------------------------------ one pass

    def _pass(self) -> None:
        if not self._scheduler.has_work:
            return  # the command left nothing to do
        if self._idle_since is not None:
            self._idle_since, self._rested, self._rates = None, False, _Rates(self._clock())
        plan = self._scheduler.schedule()
        for request_id, error in plan.refuse:
            self._fail(request_id, error)
        for removal in plan.remove:
            self._reuse.leaving(removal.key, comes_back=removal.preempted)
            self._lane(removal.lane).remove([removal.key])
        for insertion in plan.insert:
            self._insert(insertion)
        for step in plan.steps:
            self._step(step)
        now = self._clock()
        self._tend()
        if now - self._rates.since >= STATS_INTERVAL_S:
            self._report(now)

    def _insert(self, insertion: Insertion) -> None:
        run = self._runs.get(insertion.key)
        if run is None:
            return  # another row of its request failed in this very pass
        key, lane = insertion.key, self._lane(insertion.lane)
        begin = self._reuse.start(key, lambda: lane.read(key))
        if begin is None:
            return  # it waits for its prefix
        start, match = begin
        self._scheduler.row_progressed(key, start.computed_tokens)
        request_id = key.request_id
        run.max_tokens = insertion.max_tokens
        run.usage = run.usage or _usage(run, match)
        try:
            lane.insert(run.job, run.tokens[len(run.job.prompt) :], start)
        except Exception as error:
            self._fail(request_id, _engine_failed(error))
            return
        if request_id in self._unscheduled:
            self._unscheduled.discard(request_id)
            self._listener.on_scheduled(request_id)

    def _lane(self, number: int) -> Lane:
        if number not in self._lanes:
            self._lanes[number] = self._make_lane(number)
        return self._lanes[number]

    def _step(self, step: LaneStep) -> None:
        decode_rows = self._scheduler.decoding(step.lane)
        started = self._clock()
        outcome = self._lane(step.lane).step(step.prefill_step)
        if outcome.fault is None:
            self._faults = 0
            self._scheduler.pace.measured(
                seconds=self._clock() - started,
                prefill_tokens=outcome.prefill_tokens,
                decode_rows=decode_rows,
            )
        for progress in outcome.progress:
            if progress.key in self._runs:  # else its request failed in this very pass
                self._scheduler.row_progressed(progress.key, progress.computed_tokens)
        self._rates.prefill_tokens += outcome.prefill_tokens
        self._emit(outcome)
        if outcome.fault is not None:
            self._reuse.broke(outcome.fault.suspects)
        self._reuse.after_step(outcome)
        for key, error in outcome.failed:
            if key in self._runs:
                self._fail(key.request_id, _engine_failed(error))
        if outcome.fault is not None:
            self._blame(outcome.fault)

    def _emit(self, outcome: StepOutcome) -> None:
        failing = {key for key, _ in outcome.failed}
        tokens, prompts_done = [], []
        for drawn in outcome.drawn:
            run = self._runs.get(drawn.key)
            if run is None or drawn.key in failing:
                continue
            tokens.append(self._take(run, drawn))
            if run.drawn == 1:
                assert run.usage is not None
                prompts_done.append(run.usage)
        self._rates.decode_tokens += len(tokens)
        if tokens:
            self._listener.on_tokens(tokens, prompts_done)

    def _take(self, run: _Run, drawn: Drawn) -> TokenOut:
        run.tokens.append(drawn.token)
        self._scheduler.row_drew(drawn.key)
        finish: Literal["stop", "length"] | None = None
        if drawn.token in run.job.stop_tokens:
            finish = "stop"
        elif run.drawn >= run.max_tokens:
            finish = "length"
        if finish is not None:
            self._scheduler.row_ended(drawn.key)
            self._reuse.forget(drawn.key)
            del self._runs[drawn.key]
        return TokenOut(
            drawn.key.request_id, drawn.key.index, drawn.token, finish, drawn.logprob, drawn.top
        )

    # ------------------------------------------------------------------ faults

    def _blame(self, fault: StepFault) -> None:
        """One request's fault fails that one; a fault that is nobody's ends the engine."""
        self._faults += 1
        suspects = [key for key in fault.suspects if key in self._runs]
        requests = {key.request_id for key in suspects}
        if self._faults >= FAULTS_IN_A_ROW or not suspects:
            self._break(fault.error)
        if len(requests) == 1:
            self._fail(requests.pop(), _engine_failed(fault.error))
        elif fault.phase == "prefill":
            self._scheduler.prefill_failed(suspects)
        else:
            self._break(fault.error)

    def _break(self, error: Exception) -> None:
        failed = _engine_failed(error)
        for request_id in {key.request_id for key in self._runs}:
            self._fail(request_id, failed)
        raise EngineBroken(str(error)) from error

    # ------------------------------------------------------------------ stats

    def _rest(self) -> float | None:
        """Report that nothing runs and, a moment later, hand memory back; seconds to that."""
        now = self._clock()
        if self._idle_since is None:
            self._idle_since = now
            self._scheduler.check_integrity()
            self._report(now)
        left_s = self._idle_since + REST_AFTER_S - now
        if self._rested or left_s > 0:
            return None if self._rested else left_s
        self._rested = True
        self._device.release()
        self._report(now)
        return None

    def _report(self, now: float) -> None:
        seconds = max(now - self._rates.since, 1e-9)
        active, cache = self._device.memory()
        self._listener.on_stats(
            EngineStats(
                running=self._scheduler.running,
                waiting=self._scheduler.waiting,
                active_bytes=active,
                cache_bytes=cache,
                prefill_tps=self._rates.prefill_tokens / seconds,
                decode_tps=self._rates.decode_tokens / seconds,
                rows=self._scheduler.row_stats(),
            )
        )
        self._rates = _Rates(now)


def _usage(run: _Run, match: PrefixMatch | None) -> RowUsage:
    ram, ssd = (match.ram, match.ssd) if match is not None else (0, 0)
    return RowUsage(
        run.job.request_id,
        run.job.index,
        cached_ram=ram,
        cached_ssd=ssd,
        computed=len(run.job.prompt) - ram - ssd,
        match=match,
    )


def _engine_failed(error: Exception) -> EngineFailed:
    if isinstance(error, OmlxError):
        return EngineFailed(error.message, param=error.param)
    return EngineFailed(
        f"the model failed on this request: {type(error).__name__}: {error};"
        " send it again, and if it fails again look at the server log"
    )
