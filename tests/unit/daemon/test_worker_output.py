from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from omlxd.daemon.worker_output import MAX_LINE, LineSplitter


def split(*pieces: bytes) -> list[str]:
    splitter = LineSplitter()
    return [line for piece in pieces for line in splitter.feed(piece)] + splitter.finish()


@given(text=st.text(alphabet="ab é漢\r\n", max_size=200), cut=st.integers(0, 600))
def test_any_chunking_gives_the_same_lines(text: str, cut: int) -> None:
    """Half characters and half line ends at a read's edge change nothing."""
    data = text.encode()
    one_by_one = split(*(data[i : i + 1] for i in range(len(data))))
    expected = [line.rstrip() for line in text.replace("\r", "\n").split("\n")]
    assert split(data) == split(data[:cut], data[cut:]) == one_by_one == [*filter(None, expected)]


def test_a_progress_bar_is_one_line_per_redraw() -> None:
    """A carriage return ends a line as a newline does."""
    assert split(b"\r 10%\r 50%\r100%\r\ndone\n") == [" 10%", " 50%", "100%", "done"]


def test_a_line_is_bounded() -> None:
    """What is too long is cut and says so, however it comes, and the next line is whole."""
    fits, long = b"x" * MAX_LINE, b"y" * (10 * MAX_LINE)
    lines = ["x" * MAX_LINE, "y" * MAX_LINE + "…", "z"]
    data = fits + b"\n" + long + b"\nz\n"
    assert split(data) == lines
    assert split(*(data[i : i + 999] for i in range(0, len(data), 999))) == lines


def test_bytes_that_are_no_text_are_replaced() -> None:
    """Garbage in the output is not an error, not even half a character at its end."""
    assert split(b"a\xffb\n\xe6\xbc") == ["a\ufffdb", "\ufffd"]
