"""The name under which a model's blocks are kept."""

from __future__ import annotations

from pathlib import Path


def namespace(folder: Path, *, block_tokens: int) -> bytes:
    """32 bytes that change with anything that changes the KV of given tokens."""
    raise NotImplementedError
