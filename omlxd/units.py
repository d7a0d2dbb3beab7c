"""Sizes and durations as people write them, and back.

Sizes: "64GB", "512MB" (powers of 1024), a whole number of bytes, "80%" of something the key names.
Durations: "300s", "5m", "1h", "1h30m", a number of seconds, "never".
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_LARGEST_FIRST = tuple(reversed(_UNITS.items()))
_MAX_BYTES = (1 << 63) - 1  # what every wire format and file system here can carry
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_SIZE = re.compile(rf"({_NUMBER}) ?([KMGT]?B|%)?", re.IGNORECASE)
_DURATION = re.compile(rf"(?:({_NUMBER})h)?(?:({_NUMBER})m)?(?:({_NUMBER})s)?")
_SIZE_FORMS = 'a size is "64GB", "512MB", "0" or a whole number of bytes, or a share such as "80%"'
_DURATION_FORMS = 'a duration is "300s", "5m", "1h", a number of seconds, or "never"'


@dataclass(frozen=True, slots=True)
class Size:
    """Either `bytes`, or a share of a total that the key defines (`percent`, 0..100)."""

    bytes: int = 0
    percent: Decimal | None = None

    def of(self, total: int) -> int:
        """Bytes; `total` is what a percentage refers to."""
        if self.percent is None:
            return self.bytes
        return int(total * Fraction(self.percent) / 100)

    def __str__(self) -> str:
        """The exact value in a form that `parse_size` reads."""
        if self.percent is not None:
            return f"{self.percent:f}%"
        if self.bytes == 0:
            return "0"
        unit, factor = next(pair for pair in _LARGEST_FIRST if self.bytes % pair[1] == 0)
        return f"{self.bytes // factor}{unit}"


def parse_size(value: object) -> Size:
    """Raises ValueError with a sentence that says what is accepted."""
    if isinstance(value, Size):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return _checked(Fraction(value))
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(_SIZE_FORMS)
    number, unit = match[1], (match[2] or "").upper()
    if unit == "%":
        if Decimal(number) > 100:
            raise ValueError("a share is at most 100%")
        return Size(percent=_plain(Decimal(number)))
    if not unit and "." in number:
        raise ValueError(_SIZE_FORMS)
    return _checked(Fraction(number) * _UNITS[unit or "B"])


def format_size(num_bytes: int) -> str:
    """For people: at most one decimal, "64GB", "1.5GB", "12B"."""
    sign, size = ("-", -num_bytes) if num_bytes < 0 else ("", num_bytes)
    unit, factor = next((pair for pair in _LARGEST_FIRST if size >= pair[1]), ("B", 1))
    if size % factor == 0:
        return f"{sign}{size // factor}{unit}"
    return f"{sign}{size / factor:.1f}{unit}"


def parse_duration(value: object) -> float | None:
    """Seconds; None = never. Raises ValueError with a sentence that says what is accepted."""
    if value is None or value == "never":
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not 0 <= value < math.inf:
            raise ValueError("a duration is a finite number of seconds, not below 0")
        return float(value)
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None or not any(match.groups()):
        raise ValueError(_DURATION_FORMS)
    hours, minutes, seconds = (Fraction(part or 0) for part in match.groups())
    try:
        return float(hours * 3600 + minutes * 60 + seconds)
    except OverflowError:
        raise ValueError("a duration is a finite number of seconds, not below 0") from None


def format_duration(seconds: float | None) -> str:
    """The exact value in a form that `parse_duration` reads: "1h30m", "45s", "0.25s", "never"."""
    if seconds is None:
        return "never"
    if seconds != int(seconds):
        return f"{Decimal(repr(seconds)):f}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "m"), (rest, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count) or "0s"


def _checked(num_bytes: Fraction) -> Size:
    if not 0 <= num_bytes <= _MAX_BYTES:
        raise ValueError("a size is between 0 and 2^63 - 1 bytes")
    return Size(bytes=int(num_bytes))


def _plain(number: Decimal) -> Decimal:
    """Without trailing zeros, so that equal shares print the same."""
    return number.quantize(Decimal(1)) if number == int(number) else number.normalize()
