"""omlxd.units: what is accepted, what is refused, and exact round trips."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlxd.units import Size, format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("written", "num_bytes"),
    [
        ("64GB", 64 << 30),
        ("512MB", 512 << 20),
        ("4KB", 4096),
        ("2TB", 2 << 40),
        ("1.5GB", 3 << 29),
        ("64 gb", 64 << 30),
        ("12B", 12),
        ("0", 0),
        ("1024", 1024),
        (1024, 1024),
        (0, 0),
    ],
)
def test_sizes_are_powers_of_1024(written: object, num_bytes: int) -> None:
    """Every documented form means that many bytes."""
    assert parse_size(written) == Size(bytes=num_bytes)


@pytest.mark.parametrize(
    "written",
    ["", "GB", "64 GiB", "64XB", "-1GB", "1e9", "1.5", " 1GB", "8 0%", "auto", 1.5, True, None, []],
)
def test_other_sizes_are_refused_with_the_accepted_forms(written: object) -> None:
    """What is no size is refused, and the sentence shows what is one."""
    with pytest.raises(ValueError, match='"64GB"'):
        parse_size(written)


@pytest.mark.parametrize("written", [-1, 1 << 63, "9000000TB"])
def test_sizes_out_of_range_are_refused(written: object) -> None:
    """Bytes are from 0 to what 63 bits hold."""
    with pytest.raises(ValueError, match="between 0 and"):
        parse_size(written)


def test_a_share_is_of_the_total() -> None:
    """A percentage is rounded down to whole bytes of the total."""
    assert parse_size("80%").of(1001) == 800
    assert parse_size("12.5%").of(16) == 2
    assert parse_size("3GB").of(1001) == 3 << 30


def test_a_share_above_the_whole_is_refused() -> None:
    """There is no more than 100% of RAM."""
    with pytest.raises(ValueError, match="at most 100%"):
        parse_size("100.5%")


@given(st.integers(0, (1 << 63) - 1))
def test_sizes_print_exactly(num_bytes: int) -> None:
    """str() of any number of bytes reads back as that number."""
    assert parse_size(str(Size(bytes=num_bytes))) == Size(bytes=num_bytes)


@given(st.decimals(0, 100, places=3))
def test_shares_print_exactly(percent: object) -> None:
    """str() of any share reads back as that share."""
    size = parse_size(f"{percent}%")
    assert parse_size(str(size)) == size


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0B"),
        (12, "12B"),
        (64 << 30, "64GB"),
        (3 << 29, "1.5GB"),
        ((6 << 30) + 1, "6.0GB"),
        (-(2 << 20), "-2MB"),
        (5 << 50, "5120TB"),
    ],
)
def test_sizes_for_people_have_one_decimal(num_bytes: int, text: str) -> None:
    """Tables and messages show at most one decimal, none where it is exact."""
    assert format_size(num_bytes) == text


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("300s", 300.0),
        ("5m", 300.0),
        ("1h", 3600.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        ("0.25s", 0.25),
        ("0s", 0.0),
        (90, 90.0),
        (0.5, 0.5),
        ("never", None),
        (None, None),
    ],
)
def test_durations_are_seconds(written: object, seconds: float | None) -> None:
    """Every documented form means that many seconds; never means none."""
    assert parse_duration(written) == seconds


@pytest.mark.parametrize(
    "written", ["", "5", "5 m", "m", "30m1h", "5d", "-5m", "soon", True, [], {}]
)
def test_other_durations_are_refused_with_the_accepted_forms(written: object) -> None:
    """What is no duration is refused, and the sentence shows what is one."""
    with pytest.raises(ValueError, match='"300s"'):
        parse_duration(written)


@pytest.mark.parametrize("written", [-1, math.inf, math.nan, "9" * 400 + "h"])
def test_durations_out_of_range_are_refused(written: object) -> None:
    """A duration is finite and not below 0."""
    with pytest.raises(ValueError, match="finite"):
        parse_duration(written)


@given(st.one_of(st.none(), st.floats(0, 1e15), st.integers(0, 10**9).map(float)))
def test_durations_print_exactly(seconds: float | None) -> None:
    """The printed form of any duration reads back as that duration."""
    assert parse_duration(format_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (45, "45s"), (300, "5m"), (5400, "1h30m"), (7261, "2h1m1s"), (0.25, "0.25s")],
)
def test_durations_print_short(seconds: float, text: str) -> None:
    """The printed form has no zero parts."""
    assert format_duration(seconds) == text
