"""Stop strings, under any chunking."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from omlxd.worker.stops import Stopped, StopScanner

LETTERS = st.text("ab", max_size=12)
STOPS = st.lists(st.text("ab", min_size=1, max_size=4), max_size=3)


def scan(chunks: list[str], stops: list[str]) -> Stopped:
    scanner = StopScanner(stops)
    shown = ""
    for chunk in chunks:
        scanned = scanner.feed(chunk)
        shown += scanned.text
        if scanned.stop is not None:
            return Stopped(shown, scanned.stop)
    rest = scanner.flush()
    return Stopped(shown + rest.text, rest.stop)


def expected(text: str, stops: list[str]) -> Stopped:
    found = [(text.find(stop), -len(stop), stop) for stop in stops if stop in text]
    if not found:
        return Stopped(text)
    at, _, stop = min(found)
    return Stopped(text[:at], stop)


@given(st.lists(LETTERS, max_size=8), STOPS)
def test_any_chunking_gives_the_earliest_and_then_the_longest_match(
    chunks: list[str], stops: list[str]
) -> None:
    """Text and stop string are those of the whole text, however it came in."""
    assert scan(chunks, stops) == expected("".join(chunks), stops)


@given(st.lists(LETTERS, max_size=8), STOPS)
def test_only_what_could_still_be_a_match_is_held_back(chunks: list[str], stops: list[str]) -> None:
    """While nothing has matched, what is held is the beginning of a stop string."""
    scanner = StopScanner(stops)
    fed = shown = ""
    for chunk in chunks:
        scanned = scanner.feed(chunk)
        fed, shown = fed + chunk, shown + scanned.text
        if any(stop in fed for stop in stops):
            return
        held = fed[len(shown) :]
        assert not held or any(stop.startswith(held) for stop in stops)


def test_a_stop_string_over_two_chunks_is_cut_exactly() -> None:
    """Nothing of the stop string shows, everything before it does."""
    assert scan(["alpha be", "ta gam", "ma delta"], ["beta gamma"]) == Stopped(
        "alpha ", "beta gamma"
    )


def test_a_tail_that_was_held_back_shows_at_the_end() -> None:
    """A text that ends with half a stop string ends with that half."""
    scanner = StopScanner(["beta gamma"])
    assert scanner.feed("alpha beta").text == "alpha "
    assert scanner.flush() == Stopped("beta")


def test_a_longer_match_that_may_still_come_is_waited_for() -> None:
    """Of two stop strings that begin together the longer one is reported, if it comes."""
    assert scan(["a\n", "\nb"], ["\n", "\n\n"]) == Stopped("a", "\n\n")
    assert scan(["a\n", "b"], ["\n", "\n\n"]) == Stopped("a", "\n")


def test_without_stop_strings_nothing_is_held() -> None:
    """Text passes at once."""
    assert StopScanner([]).feed("abc") == Stopped("abc")
