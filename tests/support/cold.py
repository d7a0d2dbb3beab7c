"""Cold tiers on a real disk without a model: entries that are what the worker writes."""

from __future__ import annotations

import json
import os
from pathlib import Path

from omlxd.ipc.entry_format import NO_DIGEST, seal

KIB = 1024


def entry_bytes(key: str, payload: bytes = b"kv") -> bytes:
    """A whole, sealed file with one array of bytes."""
    facts = {
        "version": "1",
        "key": key,
        "kind": "kv",
        "tokens": "64",
        "arrays": "1",
        "payload": str(len(payload)),
        "xxh3_128": NO_DIGEST,
    }
    array = {"dtype": "U8", "shape": [len(payload)], "data_offsets": [0, len(payload)]}
    header = json.dumps({"__metadata__": facts, "0": array}, separators=(",", ":")).encode()
    data = bytearray(len(header).to_bytes(8, "little") + header + payload)
    seal(memoryview(data))
    return bytes(data)


def namespace(number: int) -> str:
    return f"{number:064x}"


def key(number: int) -> str:
    """Spread over the prefixes, as hashes are."""
    return f"{number % 256:02x}{number:062x}"


def put(
    folder: Path,
    number: int,
    *,
    of: str = "",
    age_s: float = 0.0,
    payload: bytes = b"kv",
    now: float = 1_700_000_000.0,
) -> Path:
    """Write entry `number`, last used `age_s` before `now`."""
    name = key(number)
    path = folder / (of or namespace(1)) / name[:2] / f"{name}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(entry_bytes(name, payload))
    os.utime(path, (now - age_s, now - age_s))
    return path


def disk_bytes(folder: Path) -> int:
    """What the entries take of the disk."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*.safetensors"))
