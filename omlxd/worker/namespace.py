"""The name under which a model's blocks are kept: blocks of one never serve another."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import mlx_lm

from omlxd.models.weights import read_header
from omlxd.worker.piece import LAYOUT_VERSION

SAMPLE_BYTES = 4096  # of every tensor: weights trained on differ there, whatever the file's times
# What turns text into tokens. Chat templates do not change the KV of given tokens, and are in
# tokenizer_config.json, which is therefore not among these.
_VOCABULARY = ("tokenizer.json", "tokenizer.model", "tiktoken.model", "vocab.json", "merges.txt")
_ADAPTER = "none"  # there are none yet; blocks computed with one will have another namespace


def namespace(folder: Path, *, block_tokens: int) -> bytes:
    """32 bytes that change with whatever changes the KV of given tokens, or its form.

    Reads the weights' headers and the first bytes of every tensor, not the weights. Raises
    OSError and WeightsUnreadable.
    """
    digest = hashlib.blake2b(digest_size=32, person=b"omlxd-space")
    for part in _parts(folder, block_tokens):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def _parts(folder: Path, block_tokens: int) -> Iterator[bytes]:
    form = f"layout {LAYOUT_VERSION}, mlx-lm {mlx_lm.__version__}, {block_tokens} tokens a block"
    yield f"{form}, adapter {_ADAPTER}".encode()
    yield (folder / "config.json").read_bytes()
    for name in _VOCABULARY:
        path = folder / name
        if path.exists():
            yield name.encode()
            yield path.read_bytes()
    for path in sorted(folder.glob("*.safetensors")):
        yield from _weights(path)


def _weights(path: Path) -> Iterator[bytes]:
    header = read_header(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        facts = os.fstat(descriptor)
        yield f"{path.name} {facts.st_size} {facts.st_mtime_ns}".encode()
        yield header.raw
        for begin, end in header.spans:
            yield os.pread(descriptor, min(SAMPLE_BYTES, end - begin), begin)
    finally:
        os.close(descriptor)
