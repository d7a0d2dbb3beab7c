"""Text of others on a terminal: what a name holds can neither steer it nor shift a column. Pure."""

from __future__ import annotations


def safe(text: str, *, keep: str = "") -> str:
    """`text` with all that is not printable as an escape, such as \\x1b; `keep` stays as it is."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def width(text: str) -> int:
    """Columns that printable text takes on a terminal."""
    if text.isascii():
        return len(text)
    # Imported only where it is needed: it takes longer than all the rest of a command.
    from rich.cells import cell_len

    return cell_len(text)
