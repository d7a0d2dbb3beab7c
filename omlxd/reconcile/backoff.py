"""Crash bookkeeping: how long to wait after a death, and when to give up.

Deaths are kept as one *run*: each within ten minutes of the one before. A longer quiet spell starts
a new run, so an engine that recovered is not punished for last week.
"""

from __future__ import annotations

DEATH_WINDOW_S = 600.0
MAX_DEATHS = 5  # so many within the window is a crash loop
FIRST_DELAY_S = 1.0
MAX_DELAY_S = 60.0
_KEPT = 8  # past this the delay no longer grows


def record_death(deaths: tuple[float, ...], now: float) -> tuple[float, ...]:
    """The run of deaths that `now` belongs to, oldest first."""
    if deaths and now - deaths[-1] > DEATH_WINDOW_S:
        deaths = ()
    return (*deaths, now)[-_KEPT:]


def retry_delay_s(deaths: tuple[float, ...]) -> float:
    """Seconds from the last death of the run to the next try: 1, 2, 4 … 60."""
    assert deaths, "a delay follows a death"
    return float(min(MAX_DELAY_S, FIRST_DELAY_S * 2 ** (len(deaths) - 1)))


def is_crash_loop(deaths: tuple[float, ...], now: float) -> bool:
    """Whether trying again by itself would only burn the machine."""
    return sum(now - death <= DEATH_WINDOW_S for death in deaths) >= MAX_DEATHS
