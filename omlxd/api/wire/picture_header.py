"""Format and size of a picture, from its first bytes; nothing is decoded.

The formats are told by their own marks, whatever a client or a server called them. A file may
still lie here and turn out larger when it is decoded, so the decoder has to check again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Format = Literal["PNG", "JPEG", "GIF", "WebP"]
FORMATS = "PNG, JPEG, GIF or WebP"

_PNG = b"\x89PNG\r\n\x1a\n"
_PDF = b"%PDF-"
_PDF_WITHIN = 1024  # readers look for the mark that far
# Marks of a JPEG's frame, which has the size; C4, C8 and CC among them mean other things.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_ALONE = frozenset({0x01, *range(0xD0, 0xD8)})  # marks that no length follows
_SCAN, _END = 0xDA, 0xD9


class NoPicture(Exception):
    """What is wrong with the bytes, as a part of a sentence."""


@dataclass(frozen=True, slots=True)
class Header:
    format: Format
    width: int
    height: int

    @property
    def pixels(self) -> int:
        return self.width * self.height


def read_header(data: bytes) -> Header:
    """Raises NoPicture for anything that is not the beginning of a picture of one of FORMATS."""
    if data.startswith(_PNG):
        header = _png(data)
    elif data.startswith(b"\xff\xd8\xff"):
        header = _jpeg(data)
    elif data[:6] in (b"GIF87a", b"GIF89a"):
        header = Header("GIF", _little(data, 6, 2), _little(data, 8, 2))
    elif data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        header = _webp(data)
    elif _PDF in data[:_PDF_WITHIN]:
        raise NoPicture("is a PDF document, and those are not read; send its pages as pictures")
    else:
        raise NoPicture(f"is no picture that is read here; send {FORMATS}")
    if not header.pixels:
        raise NoPicture(f"is a {header.format} of {header.width} x {header.height} pixels")
    return header


def _png(data: bytes) -> Header:
    if data[12:16] != b"IHDR":
        raise NoPicture("is a broken PNG: it does not begin with its size")
    return Header("PNG", _big(data, 16, 4), _big(data, 20, 4))


def _jpeg(data: bytes) -> Header:
    at = 2
    while True:
        if _big(data, at, 1) != 0xFF:
            raise NoPicture("is a broken JPEG: there is no mark where one must be")
        while (mark := _big(data, at, 1)) == 0xFF:  # any number of them may stand before a mark
            at += 1
        at += 1
        if mark in _FRAMES:
            return Header("JPEG", _big(data, at + 5, 2), _big(data, at + 3, 2))
        if mark in (_SCAN, _END):
            raise NoPicture("is a broken JPEG: it has no size before its pixels")
        if mark not in _ALONE:
            at += max(2, _big(data, at, 2))


def _webp(data: bytes) -> Header:
    kind = data[12:16]
    if kind == b"VP8X":
        return Header("WebP", 1 + _little(data, 24, 3), 1 + _little(data, 27, 3))
    if kind == b"VP8L" and data[20:21] == b"\x2f":
        bits = _little(data, 21, 4)
        return Header("WebP", 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF))
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        return Header("WebP", _little(data, 26, 2) & 0x3FFF, _little(data, 28, 2) & 0x3FFF)
    raise NoPicture("is a broken WebP: it does not begin with its size")


def _big(data: bytes, at: int, length: int) -> int:
    return int.from_bytes(_bytes(data, at, length), "big")


def _little(data: bytes, at: int, length: int) -> int:
    return int.from_bytes(_bytes(data, at, length), "little")


def _bytes(data: bytes, at: int, length: int) -> bytes:
    if at + length > len(data):
        raise NoPicture("is cut off before its size")
    return data[at : at + length]
