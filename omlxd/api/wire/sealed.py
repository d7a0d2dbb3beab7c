"""Reasoning that a client carries without showing it, and sends back with the next turn.

What is sealed is only wrapped, not encrypted: it is the client's own conversation, and the prompt
of the next turn needs it word for word.
"""

from __future__ import annotations

from base64 import b64decode, b64encode

_MARK = b"omlxd/1:"


def seal(text: str) -> str:
    """Letters, digits, `+`, `/` and `=`; never empty, also for an empty text."""
    return b64encode(_MARK + text.encode()).decode("ascii")


def unseal(sealed: object) -> str:
    """The text; empty for what some other server sealed."""
    if not isinstance(sealed, str):
        return ""
    try:
        raw = b64decode(sealed, validate=True)
        return raw.removeprefix(_MARK).decode() if raw.startswith(_MARK) else ""
    except ValueError:  # neither base64 nor text
        return ""
