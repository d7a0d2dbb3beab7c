"""The memory limit divided among engines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from omlxd.reconcile.shares import shares
from tests.unit.reconcile.build import desired, load_of, spec


def test_alone_it_may_take_all() -> None:
    """One engine gets the whole limit, whatever its estimate."""
    assert shares(desired(spec("A"), spec("B")), ["A"], {}) == {"A": 100}


def test_what_is_left_is_divided_evenly() -> None:
    """Each has its estimate first, then an even part of the rest."""
    wanted = desired(spec("A", estimate_bytes=10), spec("B", estimate_bytes=30))
    assert shares(wanted, ["A", "B"], {}) == {"A": 40, "B": 60}


def test_max_memory_caps_a_share() -> None:
    """What the cap leaves over is nobody's, so that a share does not depend on others' caps."""
    capped = spec("A", load=replace(load_of("A"), max_memory_bytes=25))
    assert shares(desired(capped, spec("B")), ["A", "B"], {}) == {"A": 25, "B": 50}


def test_beyond_the_limit_everyone_has_its_estimate() -> None:
    """Estimates above the limit leave nothing to divide, and nobody less than it was let in for."""
    wanted = desired(spec("A", estimate_bytes=80), spec("B", estimate_bytes=50))
    assert shares(wanted, ["A", "B"], {}) == {"A": 80, "B": 50}


def test_who_is_no_longer_served_keeps_its_share() -> None:
    """The last requests of a removed model may use what it was promised; others get the rest."""
    assert shares(desired(spec("A")), ["A", "gone"], {"gone": 40}) == {"A": 60, "gone": 40}
    assert shares(desired(), ["gone"], {"gone": 40}) == {"gone": 40}
    assert shares(desired(spec("A")), [], {"A": 100}) == {}


@given(
    st.dictionaries(st.sampled_from("ABCDE"), st.integers(0, 60), min_size=1),
    st.dictionaries(st.sampled_from("XYZ"), st.integers(0, 60)),
    st.integers(1, 200),
)
def test_the_sum_fits_the_limit(
    estimates: dict[str, int], promised: dict[str, int], limit: int
) -> None:
    """While estimates and promises fit, so do the shares; nobody is below its estimate."""
    wanted = desired(*(spec(m, estimate_bytes=b) for m, b in estimates.items()), limit=limit)
    found = shares(wanted, [*estimates, *promised], promised)
    assert all(found[model] >= estimate for model, estimate in estimates.items())
    if sum(estimates.values()) + sum(promised.values()) <= limit:
        assert sum(found.values()) <= limit
