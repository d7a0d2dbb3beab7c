"""Marks in text, under any chunking."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from omlxd.worker.marks import scan

MARKS = st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3)


@given(st.lists(st.text("ab", max_size=6), max_size=8), MARKS)
def test_any_chunking_parts_the_text_in_the_same_places(
    chunks: list[str], marks: list[str]
) -> None:
    """All marks one after another are those found in the whole text."""
    parts: list[str | None] = []
    held = ""
    for chunk in [*chunks, None]:
        held += chunk or ""
        while True:
            scanned = scan(held, marks, final=chunk is None)
            parts += list(scanned.text)
            held = scanned.rest
            if scanned.mark is None:
                break
            parts.append(f"<{scanned.mark}>")
    whole, expected = "".join(chunks), []
    while whole:
        first = next((m for m in sorted(marks, key=len)[::-1] if whole.startswith(m)), None)
        expected.append(f"<{first}>" if first else whole[0])
        whole = whole[len(first or "a") :]
    assert parts == expected
    assert held == ""
