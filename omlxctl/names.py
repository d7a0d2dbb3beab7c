"""Model names in paths of the control socket. Pure."""

from __future__ import annotations

from urllib.parse import quote


def model_path(model: str, action: str = "") -> str:
    """/v1/models/{id}[/action]; an id may hold a slash, so it is percent-encoded whole."""
    path = f"/v1/models/{quote(model, safe='')}"
    return f"{path}/{action}" if action else path
