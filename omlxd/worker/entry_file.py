"""One entry, one safetensors file, whole or not there; its form is in `omlxd.ipc.entry_format`.

A file is written beside its place and renamed. It is not synced: what a power cut tears is found by
the checksum and costs one recomputed block, a sync would cost every block some milliseconds and the
disk its order.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import threading
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import msgspec

from omlxd.ipc.entry_format import (
    TEMPORARY_SUFFIX,
    BadEntry,
    EntryFacts,
    Tensor,
    seal,
    tensors,
    verified,
)
from omlxd.kv.types import EntryKey
from omlxd.worker.piece import LAYOUT_VERSION, Piece

_DTYPES = {
    "BOOL": mx.bool_,
    "U8": mx.uint8,
    "I8": mx.int8,
    "U16": mx.uint16,
    "I16": mx.int16,
    "U32": mx.uint32,
    "I32": mx.int32,
    "U64": mx.uint64,
    "I64": mx.int64,
    "F16": mx.float16,
    "BF16": mx.bfloat16,
    "F32": mx.float32,
    "C64": mx.complex64,
}
_thread = threading.local()
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def write_entry(path: Path, key: EntryKey, piece: Piece) -> int:
    """Write or replace the file at once; gives its bytes, raises OSError. The folder must exist.

    May run in any thread, as the piece is evaluated.
    """
    data = _serialised(key, piece)
    temporary = path.with_name(f"{key.hex()}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")
    try:
        with os.fdopen(os.open(temporary, CREATE, 0o600), "wb") as file:
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
        data = _read(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise BadEntry("absent", str(error)) from None
    except (OSError, MemoryError) as error:
        raise BadEntry("io", f"{path}: {error!r}") from error
    facts = verified(data, key.hex(), where=path)
    if facts.version != LAYOUT_VERSION:
        raise BadEntry("header", f"{path} has layout {facts.version}, not {LAYOUT_VERSION}")
    try:
        arrays = {name: _array(tensor, part) for name, (tensor, part) in tensors(data).items()}
        ordered = tuple(arrays[str(number)] for number in range(facts.arrays))
        mx.eval(ordered)
    except (RuntimeError, ValueError, KeyError, MemoryError) as error:
        raise BadEntry("header", f"{path}: {error!r}") from error
    return Piece(facts.kind, facts.tokens, ordered)


def _read(path: Path) -> memoryview:
    """The whole file, good until this thread's next read.

    The buffer is used again: fresh memory costs more than the reading.
    """
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        buffer: bytearray = getattr(_thread, "buffer", bytearray())
        if len(buffer) < size:
            buffer = _thread.buffer = bytearray(size)
        data, done = memoryview(buffer)[:size], 0
        while done < size and (count := file.readinto(data[done:])):
            done += count
        return data[:done]


def _array(tensor: Tensor, data: memoryview) -> mx.array:
    """Not by mx.load, which has its stream's thread call Python.

    While that waits for the interpreter, mx.clear_cache in another thread holds it and waits for
    the stream: neither ever goes on.
    """
    flat = mx.array(cast(Any, data))  # it takes what its types do not tell
    return flat.view(_DTYPES[tensor.dtype]).reshape(tensor.shape)


def _serialised(key: EntryKey, piece: Piece) -> memoryview:
    facts = EntryFacts(
        version=LAYOUT_VERSION,
        key=key.hex(),
        kind=piece.kind,
        tokens=piece.tokens,
        arrays=len(piece.arrays),
        payload=piece.nbytes,
    )
    buffer = io.BytesIO()
    arrays = {str(number): array for number, array in enumerate(piece.arrays)}
    metadata = {name: str(value) for name, value in msgspec.structs.asdict(facts).items()}
    mx.save_safetensors(buffer, arrays, metadata)
    data = buffer.getbuffer()
    seal(data)
    return data
