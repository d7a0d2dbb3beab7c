"""From the name a client sends to the id a model is served under. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from omlxd.errors import ModelNotFound
from omlxd.models.card import ModelCard


def resolve(name: str, cards: Mapping[str, ModelCard], aliases: Mapping[str, str]) -> str:
    """The id that `name` means: an id, an alias, a path under a model folder, or a short name.

    A short name (last part) counts if it is unique among the servable models, or else among all.
    Raises ModelNotFound, which lists what exists. The model may still be unservable: its card says.
    """
    if name in cards:
        return name
    if name in aliases:
        return aliases[name]
    by_path = [card.id for card in cards.values() if name in card.names]
    if by_path:
        return by_path[0]
    short = [card for card in cards.values() if name in _short_names(card)]
    servable = [card for card in short if card.servable]
    for candidates in (servable, short):
        if len(candidates) == 1:
            return candidates[0].id
    if short:
        ids = ", ".join(sorted(card.id for card in short))
        raise ModelNotFound(f"model {name!r} can mean {ids}; use the full name", param="model")
    raise ModelNotFound(_unknown(name, cards, aliases), param="model")


def _short_names(card: ModelCard) -> set[str]:
    return {name.rpartition("/")[2] for name in (card.id, *card.names)}


def _unknown(name: str, cards: Mapping[str, ModelCard], aliases: Mapping[str, str]) -> str:
    exist = sorted({card.id for card in cards.values() if card.servable} | set(aliases))
    if not exist:
        return f"model {name!r} does not exist; no model can be served, see omlxctl models"
    close = _closest(name, exist)
    hint = f" (did you mean {close!r}?)" if close else ""
    return f"model {name!r} does not exist{hint}; there are: {', '.join(exist)}"


def _closest(name: str, exist: Iterable[str]) -> str:
    by_folded = {other.lower(): other for other in exist}
    found = get_close_matches(name.lower(), by_folded, n=1)
    return by_folded[found[0]] if found else ""
