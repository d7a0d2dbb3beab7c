"""The files of the cold tier: `<namespace>/<hh>/<hash>.safetensors`, one entry each.

Both sides hold to it: the worker writes and reads entries, the daemon counts, checks and removes
them. What does not look like this is not ours and is never touched.

The checksum covers every byte of the file but its own digits (which stand as zeros while it is
taken), so names, types, shapes and metadata are under it too, and nothing is parsed or handed on
that is not what was written.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
import xxhash

ENTRY_SUFFIX = ".safetensors"
TEMPORARY_SUFFIX = ".tmp.safetensors"  # <hash>.<random>.tmp.safetensors, renamed when whole
NO_DIGEST = "0" * 32

BadReason = Literal["absent", "truncated", "checksum", "header", "wrong key", "io"]

_NAMESPACE = re.compile(r"[0-9a-f]{64}")
_PREFIX = re.compile(r"[0-9a-f]{2}")
_ENTRY = re.compile(rf"[0-9a-f]{{64}}{re.escape(ENTRY_SUFFIX)}")
_TEMPORARY = re.compile(rf"[0-9a-f]{{64}}\.[0-9a-f]{{8}}{re.escape(TEMPORARY_SUFFIX)}")
_LENGTH_BYTES = 8  # of the header, little-endian, first in the file
_DIGEST = '"xxh3_128":"{}"'


# ------------------------------------------------------------------ names


def is_namespace(name: str) -> bool:
    return _NAMESPACE.fullmatch(name) is not None


def is_prefix(name: str) -> bool:
    """Of the folders in a namespace, each for the entries whose hash begins with it."""
    return _PREFIX.fullmatch(name) is not None


def is_entry(prefix: str, name: str) -> bool:
    return name.startswith(prefix) and _ENTRY.fullmatch(name) is not None


def is_temporary(prefix: str, name: str) -> bool:
    """An entry that is being written, or was when its writer died."""
    return name.startswith(prefix) and _TEMPORARY.fullmatch(name) is not None


# ------------------------------------------------------------------ content


class BadEntry(Exception):
    """A file that gives no entry; `reason` is what to count it under."""

    def __init__(self, reason: BadReason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class EntryFacts(msgspec.Struct):
    """The file's metadata; safetensors has strings only."""

    version: int
    key: str  # hex, as in the file's name
    kind: Literal["kv", "window", "point"]
    tokens: int
    arrays: int
    payload: int  # bytes after the header
    xxh3_128: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")] = NO_DIGEST


class _Header(msgspec.Struct, rename={"facts": "__metadata__"}):
    facts: EntryFacts


class Tensor(msgspec.Struct):
    """One array: safetensors' name of its type, its shape, and where its bytes are in the file."""

    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]  # in the payload


def tensors(data: memoryview) -> dict[str, tuple[Tensor, memoryview]]:
    """The arrays of a file that was `verified`, with their bytes; raises BadEntry."""
    header_end = _header_end(data)
    try:
        named = msgspec.json.decode(data[_LENGTH_BYTES:header_end], type=dict[str, msgspec.Raw])
        found = {
            name: msgspec.json.decode(raw, type=Tensor)
            for name, raw in named.items()
            if name != "__metadata__"
        }
    except msgspec.DecodeError as error:
        raise BadEntry("header", str(error)) from None
    payload = data[header_end:]
    return {name: (each, payload[slice(*each.data_offsets)]) for name, each in found.items()}


def seal(data: memoryview) -> None:
    """Put the checksum into a whole file whose metadata has `NO_DIGEST` for it."""
    digits = _digits(bytes(data[: _header_end(data)]), NO_DIGEST)
    data[digits] = _digest(data, digits).encode()


def verified(data: bytes | memoryview, key: str, *, where: object) -> EntryFacts:
    """What a whole file says of itself, once all of it was found to be as it was written.

    `key` is the one its name gives, in hex; `where` names the file in messages. Raises BadEntry.
    """
    header_end = _header_end(data)
    if len(data) < header_end:
        raise BadEntry("truncated", f"{where} ends in its header")
    header = bytes(data[:header_end])
    try:
        facts = msgspec.json.decode(header[_LENGTH_BYTES:], type=_Header, strict=False).facts
        digits = _digits(header, facts.xxh3_128)
    except (msgspec.DecodeError, ValueError) as error:
        raise BadEntry("header", f"{where}: {error}") from None
    if len(data) < header_end + facts.payload:
        whole = header_end + facts.payload
        raise BadEntry("truncated", f"{where} has {len(data)} bytes, not {whole}")
    if _digest(data, digits) != facts.xxh3_128:
        raise BadEntry("checksum", f"{where} is not what was written")
    if facts.key != key:
        raise BadEntry("wrong key", f"{where} holds entry {facts.key}")
    return facts


def _header_end(data: bytes | memoryview) -> int:
    return _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")


def _digits(header: bytes, digest: str) -> slice:
    """Where the digest's own digits stand; raises ValueError."""
    begin = header.index(_DIGEST.format(digest).encode()) + len(_DIGEST.format("")) - 1
    return slice(begin, begin + len(digest))


def _digest(data: bytes | memoryview, digits: slice) -> str:
    """Of everything, with zeros in the digest's own place."""
    whole = memoryview(data)
    state = xxhash.xxh3_128(whole[: digits.start])
    state.update(NO_DIGEST.encode())
    state.update(whole[digits.stop :])
    return state.hexdigest()
