"""Crash bookkeeping."""

from __future__ import annotations

import pytest

from omlxd.reconcile.backoff import is_crash_loop, record_death, retry_delay_s


@pytest.mark.parametrize(
    ("count", "delay"), [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 32), (7, 60), (8, 60)]
)
def test_delay_doubles_up_to_a_minute(count: int, delay: float) -> None:
    """The wait is 1 s after the first death of a run and doubles to 60 s."""
    assert retry_delay_s(tuple(map(float, range(count)))) == delay


def test_slow_deaths_still_grow_the_delay() -> None:
    """Deaths every five minutes are no loop, yet one run: the wait reaches a minute and stays."""
    deaths: tuple[float, ...] = ()
    for death in range(20):
        deaths = record_death(deaths, death * 300.0)
        assert not is_crash_loop(deaths, death * 300.0)
    assert retry_delay_s(deaths) == 60


def test_fifth_death_within_ten_minutes_is_a_loop() -> None:
    """Four deaths in ten minutes are forgiven, the fifth is a crash loop."""
    deaths: tuple[float, ...] = ()
    verdicts = []
    for now in (0.0, 150.0, 300.0, 450.0, 600.0):
        deaths = record_death(deaths, now)
        verdicts.append(is_crash_loop(deaths, now))
    assert verdicts == [False, False, False, False, True]


def test_quiet_spell_starts_a_new_run() -> None:
    """More than ten quiet minutes forgive the deaths before."""
    assert record_death((0.0, 1.0, 2.0), 602.5) == (602.5,)
    assert record_death((0.0, 1.0, 2.0), 602.0) == (0.0, 1.0, 2.0, 602.0)
