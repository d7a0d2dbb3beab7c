from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlxd.ipc.framing import MAX_PAYLOAD, Framer, FramingError, encode

PAYLOADS = st.lists(st.binary(min_size=1, max_size=300), max_size=8)


def _pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


@given(payloads=PAYLOADS, cuts=st.lists(st.integers(0, 10_000), max_size=20))
def test_any_chunking_gives_the_same_frames(payloads: list[bytes], cuts: list[int]) -> None:
    """However the stream is cut, the payloads come out whole and in order."""
    framer = Framer()
    stream = b"".join(encode(payload) for payload in payloads)
    out = [frame for piece in _pieces(stream, cuts) for frame in framer.feed(piece)]
    assert out == payloads
    assert framer.pending_bytes == 0


@given(payloads=PAYLOADS)
def test_one_byte_at_a_time_is_enough(payloads: list[bytes]) -> None:
    """A frame is given out with its last byte, not before and not after."""
    framer = Framer()
    for payload in payloads:
        frame = encode(payload)
        assert [framer.feed(frame[i : i + 1]) for i in range(len(frame) - 1)] == [[]] * (
            len(frame) - 1
        )
        assert framer.pending_bytes == len(frame) - 1
        assert framer.feed(frame[-1:]) == [payload]


@given(payloads=PAYLOADS, cuts=st.lists(st.integers(0, 10_000), max_size=20))
def test_frames_before_an_impossible_length_are_not_lost(
    payloads: list[bytes], cuts: list[int]
) -> None:
    """The frames that ended before a bad length are delivered in every chunking."""
    framer = Framer()
    stream = b"".join(encode(payload) for payload in payloads) + b"\0\0\0\0"
    out: list[bytes] = []
    broken = False
    for piece in _pieces(stream, cuts):
        try:
            out += framer.feed(piece)
        except FramingError as error:
            out += error.complete
            broken = True
    assert broken
    assert out == payloads


@pytest.mark.parametrize("length", [0, MAX_PAYLOAD + 1, 0xFFFFFFFF])
def test_an_impossible_length_breaks_the_framer_for_good(length: int) -> None:
    """After a length that cannot be, nothing is believed any more, good frames included."""
    framer = Framer()
    with pytest.raises(FramingError, match=str(length) if length else "no bytes"):
        framer.feed(length.to_bytes(4, "big"))
    with pytest.raises(FramingError):
        framer.feed(encode(b"good"))


def test_the_longest_payload_is_announced_without_an_error() -> None:
    """MAX_PAYLOAD itself is still a legal length."""
    assert Framer().feed(MAX_PAYLOAD.to_bytes(4, "big")) == []


def test_an_empty_payload_cannot_be_encoded() -> None:
    """The sender learns of a frame that cannot exist before the peer does."""
    with pytest.raises(FramingError, match="no bytes"):
        encode(b"")
