"""One entry, one safetensors file, whole or not there.

The checksum covers every byte of the file but its own digits (which stand as zeros while it is
taken), so names, types, shapes and metadata are under it too, and nothing is parsed or handed to
MLX that is not what was written. A file is written beside its place and renamed. It is not synced:
what a power cut tears is found by the checksum and costs one recomputed block, a sync would cost
every block some milliseconds and the disk its order.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
from pathlib import Path
from typing import Annotated, Literal, cast

import mlx.core as mx
import msgspec
import xxhash

from omlxd.kv.types import EntryKey, EntryKind
from omlxd.worker.piece import LAYOUT_VERSION, Piece

BadReason = Literal["absent", "truncated", "checksum", "header", "wrong key", "io"]
TEMPORARY = ".tmp.safetensors"  # <hash>.<random>.tmp.safetensors

_LENGTH_BYTES = 8  # of the header, little-endian, first in the file
_NO_DIGEST = "0" * 32
_DIGEST = '"xxh3_128":"{}"'
_OPEN = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class BadEntry(Exception):
    """A file that gives no piece; `reason` is what to count it under."""

    def __init__(self, reason: BadReason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class _Facts(msgspec.Struct):
    """The file's metadata; safetensors has strings only."""

    version: int
    key: str
    kind: EntryKind
    tokens: int
    arrays: int
    payload: int  # bytes after the header
    xxh3_128: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]


class _Header(msgspec.Struct, rename={"facts": "__metadata__"}):
    facts: _Facts


def write_entry(path: Path, key: EntryKey, piece: Piece) -> int:
    """Write or replace the file at once; gives its bytes, raises OSError. The folder must exist.

    May run in any thread, as the piece is evaluated.
    """
    data = _serialised(key, piece)
    temporary = path.with_name(f"{key.hex()}.{secrets.token_hex(4)}{TEMPORARY}")
    try:
        with os.fdopen(os.open(temporary, _OPEN, 0o600), "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to tell
            temporary.unlink()
        raise
    return len(data)


def read_entry(path: Path, key: EntryKey) -> Piece:
    """The piece, evaluated in this thread, so that any other may use it; raises BadEntry only."""
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise BadEntry("absent", str(error)) from None
    except (OSError, MemoryError) as error:
        raise BadEntry("io", f"{path}: {error!r}") from error
    facts = _verified(data, key, path)
    try:
        arrays = cast(dict[str, mx.array], mx.load(io.BytesIO(data), format="safetensors"))
        ordered = tuple(arrays[str(number)] for number in range(facts.arrays))
        mx.eval(ordered)
    except (RuntimeError, ValueError, KeyError, MemoryError) as error:
        raise BadEntry("header", f"{path}: {error!r}") from error
    return Piece(facts.kind, facts.tokens, ordered)


def _serialised(key: EntryKey, piece: Piece) -> memoryview:
    facts = _Facts(
        version=LAYOUT_VERSION,
        key=key.hex(),
        kind=piece.kind,
        tokens=piece.tokens,
        arrays=len(piece.arrays),
        payload=piece.nbytes,
        xxh3_128=_NO_DIGEST,
    )
    buffer = io.BytesIO()
    arrays = {str(number): array for number, array in enumerate(piece.arrays)}
    metadata = {name: str(value) for name, value in msgspec.structs.asdict(facts).items()}
    mx.save_safetensors(buffer, arrays, metadata)
    data = buffer.getbuffer()
    digits = _digits(bytes(data[: _header_end(data)]), _NO_DIGEST)
    data[digits] = _digest(data, digits).encode()
    return data


def _verified(data: bytes, key: EntryKey, path: Path) -> _Facts:
    """What the file says of itself, once all of it has been found to be as it was written."""
    header_end = _header_end(data)
    if len(data) < header_end:
        raise BadEntry("truncated", f"{path} ends in its header")
    header = data[:header_end]
    try:
        facts = msgspec.json.decode(header[_LENGTH_BYTES:], type=_Header, strict=False).facts
        digits = _digits(header, facts.xxh3_128)
    except (msgspec.DecodeError, ValueError) as error:
        raise BadEntry("header", f"{path}: {error}") from None
    if len(data) < header_end + facts.payload:
        raise BadEntry(
            "truncated", f"{path} has {len(data)} bytes, not {header_end + facts.payload}"
        )
    if _digest(data, digits) != facts.xxh3_128:
        raise BadEntry("checksum", f"{path} is not what was written")
    if facts.key != key.hex():
        raise BadEntry("wrong key", f"{path} holds entry {facts.key}")
    if facts.version != LAYOUT_VERSION:
        raise BadEntry("header", f"{path} has layout {facts.version}, not {LAYOUT_VERSION}")
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
    state.update(_NO_DIGEST.encode())
    state.update(whole[digits.stop :])
    return state.hexdigest()
