"""Format and size of a picture, from its first bytes."""

from __future__ import annotations

import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from omlxd.api.wire.picture_header import Header, NoPicture, read_header
from tests.support.pictures import png

SIZES = ((1, 1), (31, 7), (300, 5))


def encoded(kind: str, mode: str, size: tuple[int, int], **options: object) -> bytes:
    file = io.BytesIO()
    Image.new(mode, size).save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("kind", "mode", "options"),
    [
        ("PNG", "RGBA", {}),
        ("PNG", "1", {}),
        ("JPEG", "RGB", {}),
        ("JPEG", "L", {"progressive": True}),
        ("JPEG", "CMYK", {"comment": b"\xff\xc0 is no mark in here"}),
        ("GIF", "P", {}),
        ("WEBP", "RGB", {}),
        ("WEBP", "RGBA", {"lossless": True}),
        ("WEBP", "RGB", {"exif": b"Exif\0\0"}),
    ],
)
def test_pictures_of_an_encoder(
    kind: str, mode: str, options: dict[str, object], size: tuple[int, int]
) -> None:
    """Every kind of file says what it is and how large."""
    header = read_header(encoded(kind, mode, size, **options))
    assert header.format.upper() == kind
    assert (header.width, header.height) == size


def test_a_size_is_believed_as_it_is_written() -> None:
    """A file of a few bytes can say that it is huge; nothing is made of that size here."""
    assert read_header(png(60_000, 60_000)) == Header("PNG", 60_000, 60_000)
    assert read_header(png(60_000, 60_000)).pixels == 3_600_000_000


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "no picture"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "no picture"),
        (b"<html>not found</html>", "no picture"),
        (b"\n%PDF-1.7\n", "PDF"),
        (png(0, 5), "0 x 5 pixels"),
        (png(8, 8)[:20], "cut off"),
        (b"\x89PNG\r\n\x1a\n" + bytes(30), "broken PNG"),
        (b"GIF89a\x01", "cut off"),
        (b"RIFF\0\0\0\0WEBPABCD" + bytes(20), "broken WebP"),
        (b"\xff\xd8\xff\xda\0\x02", "no size"),
        (b"\xff\xd8\xff\xe0\0\x02zz", "no mark"),
        (b"\xff\xd8\xff\xff\xff", "cut off"),
        (b"\xff\xd8\xff\xe0\0\0", "cut off"),
    ],
)
def test_what_is_no_picture(data: bytes, problem: str) -> None:
    """It is told what was found instead."""
    with pytest.raises(NoPicture, match=problem):
        read_header(data)


STARTS = [encoded(kind, "RGB", (9, 4)) for kind in ("PNG", "JPEG", "WEBP", "GIF")]
STARTS += [
    b"\xff\xd8\xff",
    b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f",
    struct.pack("<6sHH", b"GIF87a", 1, 2),
]


@given(st.sampled_from(STARTS), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255))))
def test_any_bytes_have_a_size_or_are_refused(start: bytes, changes: list[tuple[int, int]]) -> None:
    """Whatever is broken in them."""
    data = bytearray(start)
    for place, value in changes:
        if place < len(data):
            data[place] = value
    for end in (len(data), 20, 27):
        try:
            header = read_header(bytes(data[:end]))
        except NoPicture:
            continue
        assert header.pixels > 0
