"""Why a match goes no further."""

from __future__ import annotations

from omlxd.kv.gone import Gone
from omlxd.kv.plans import WhyNotMore
from omlxd.kv.search import Search


def why_not_more(search: Search, gone: Gone, point: int) -> tuple[WhyNotMore, int | None]:
    """One word for it, and the first token that differs from the nearest path in RAM."""
    reach, differs = search.nearest()
    return _why(search, gone, point, reach=reach, differs=differs), reach if differs else None


def _why(search: Search, gone: Gone, point: int, *, reach: int, differs: bool) -> WhyNotMore:
    tiers = search.tiers
    if point == search.limit:
        return "exact prompt"
    if search.was_no_room:
        return "no room in RAM"
    if (went := _went(search, gone, point)) is not None:
        return went
    if reach > point:
        return "not restorable here"
    if differs:
        return "diverged"
    if not tiers.index.nodes and tiers.cold.is_empty:
        return "nothing stored"
    return "never stored"


def _went(search: Search, gone: Gone, point: int) -> WhyNotMore | None:
    """Of what would have carried the match on, why it is not there."""
    if not gone:
        return None
    keys, layout = search.keys, search.tiers.layout
    if layout.grows:
        numbers = range(len(search.path), len(keys.hashes))[:1]
    else:
        numbers = range(point // layout.block_tokens, len(keys.hashes))[::-1]
    kinds = layout.kinds[:1] if layout.grows else layout.kinds
    whys = (gone.get(keys.name(number, kind)) for number in numbers for kind in kinds)
    return next((why for why in whys if why is not None), None)
