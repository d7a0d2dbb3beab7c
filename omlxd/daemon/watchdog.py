"""Ends a worker that has requests under way and says nothing any more.

An engine at work sends its figures about once a second, between two of its steps, and a step takes
seconds. They are the sign of life: a thread of its own that sent one would speak for a hung engine
as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from omlxd.daemon.controller import Controller

HUNG_S = 120.0  # a prompt of a whole window is tokenised, and the slowest step run, in far less
# Of the time between two looks no more than this counts: while the daemon itself was held up
# (stopped, or the machine asleep), frames may have come that it has not read yet.
LONGEST_LOOK_S = 5.0


@dataclass(slots=True)
class _Silence:
    heard: tuple[int, int]  # which worker, and how many frames it has sent
    seconds: float = 0.0


class Watchdog:
    """Owns how long each engine at work has been silent."""

    def __init__(self, controller: Controller, *, hung_s: float = HUNG_S) -> None:
        self._controller = controller
        self._hung_s = hung_s
        self._silences: dict[str, _Silence] = {}
        self._looked_at: float | None = None

    def look(self, now: float) -> None:
        """Call every few seconds. `now` is monotonic seconds."""
        passed = 0.0 if self._looked_at is None else min(now - self._looked_at, LONGEST_LOOK_S)
        self._looked_at = now
        before, self._silences = self._silences, {}
        for model, engine in self._controller.engines.items():
            # Until it is loaded, `engine.start_timeout` is the bound.
            if engine.phase not in ("ready", "draining") or engine.loaded_at is None:
                continue
            worker = self._controller.fleet.worker_of(model)
            if worker is None or engine.in_flight == 0:
                continue
            silence = before.get(model)
            heard = worker.worker_id, worker.num_frames
            if silence is None or silence.heard != heard:
                silence = _Silence(heard)
            else:
                silence.seconds += passed
            self._silences[model] = silence
            if silence.seconds >= self._hung_s:
                worker.give_up(f"sent nothing for {silence.seconds:.0f} s with requests under way")
