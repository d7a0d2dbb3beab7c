"""safetensors headers: how large the tensors are, and whether the file is whole.

The library's `safe_open` would bring numpy into the control plane (15 MB) and maps the file; the
format is eight bytes of length, that much JSON, then the data.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import msgspec

MAX_HEADER_BYTES = 100_000_000  # the library's own bound
SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.safetensors")


class WeightsUnreadable(Exception):
    """A weights file that cannot be loaded; `str()` is a clause that names it."""


class _Tensor(msgspec.Struct):
    data_offsets: tuple[int, int] = (0, 0)  # the `__metadata__` entry has none


class Index(msgspec.Struct):
    """model.safetensors.index.json: which file holds which tensor."""

    weight_map: dict[str, str]


@dataclass(frozen=True, slots=True)
class Header:
    raw: bytes  # as it is in the file
    spans: tuple[tuple[int, int], ...]  # of each tensor's bytes in the file, in no special order
    end: int  # of the last tensor


def read_header(path: Path) -> Header:
    """The header of one safetensors file; raises WeightsUnreadable, also if the file is cut."""
    size = path.stat().st_size
    with path.open("rb") as file:
        header_bytes = int.from_bytes(file.read(8), "little")
        if size < 8 or not 2 <= header_bytes <= MAX_HEADER_BYTES or 8 + header_bytes > size:
            raise WeightsUnreadable(f"{path.name} is cut short or not a safetensors file")
        raw = file.read(header_bytes)
    try:
        tensors = msgspec.json.decode(raw, type=dict[str, _Tensor | None])
    except msgspec.DecodeError as error:
        raise WeightsUnreadable(f"the header of {path.name} is not valid: {error}") from None
    begin = 8 + header_bytes
    offsets = [tensor.data_offsets for tensor in tensors.values() if tensor]  # no metadata is null
    spans = tuple((begin + first, begin + last) for first, last in offsets)
    end = max((stop for _, stop in spans), default=begin)
    if end != size:
        raise WeightsUnreadable(
            f"{path.name} has {size} bytes where its header says {end}; "
            "it is still being written, or cut short"
        )
    return Header(raw, spans, end)


def tensor_bytes(path: Path) -> int:
    """Bytes of tensor data in one safetensors file; raises WeightsUnreadable."""
    header = read_header(path)
    return header.end - 8 - len(header.raw)


def missing_shards(names: frozenset[str], index: Index | None) -> list[str]:
    """Weight files that must be there and are not: named by the index, or by `-of-N` of others."""
    wanted = set(index.weight_map.values()) if index else set()
    for match in filter(None, map(SHARD.fullmatch, names)):
        count = int(match["count"])
        wanted |= {
            f"{match['stem']}-{number:05d}-of-{match['count']}.safetensors"
            for number in range(1, count + 1)
        }
    return sorted(wanted - names)
