"""The files of the cold tier: `<namespace>/<hh>/<hash>.safetensors` and how they are written.

Both sides hold to it: the worker writes and reads entries, the daemon counts, checks and removes
them. What does not look like this is not ours and is never touched.
"""

from __future__ import annotations

import re

ENTRY_SUFFIX = ".safetensors"
TEMPORARY_SUFFIX = ".tmp.safetensors"  # <hash>.<random>.tmp.safetensors, renamed when whole

_NAMESPACE = re.compile(r"[0-9a-f]{64}")
_PREFIX = re.compile(r"[0-9a-f]{2}")
_ENTRY = re.compile(rf"[0-9a-f]{{64}}{re.escape(ENTRY_SUFFIX)}")
_TEMPORARY = re.compile(rf"[0-9a-f]{{64}}\.[0-9a-f]{{8}}{re.escape(TEMPORARY_SUFFIX)}")


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
