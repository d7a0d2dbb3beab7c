"""How the RAM for KV blocks is divided among the engines that can use it.

A part goes evenly, so that an engine that was just loaded can begin; the rest goes by what each
was lately sent. Small changes are not worth the blocks they would cost and are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from omlxd.reconcile.state import ModelId

REVIEW_S = 60.0
HALF_LIFE_S = 600.0  # a token counts half after as long
EVEN_PART = Fraction(1, 4)  # of the budget, whoever is busy
LEAST_CHANGE = 0.05  # of the budget; below it nobody's share moves


@dataclass(frozen=True, slots=True, kw_only=True)
class HotDivision:
    """Bytes per engine, and what they were decided from."""

    budget_bytes: int = 0
    decided_at: float = 0.0
    tokens: Mapping[ModelId, int] = field(default_factory=dict)  # prompts, since its worker started
    weights: Mapping[ModelId, float] = field(default_factory=dict)  # recent tokens
    shares: Mapping[ModelId, int] = field(default_factory=dict)


def divide(
    before: HotDivision, *, budget_bytes: int, tokens: Mapping[ModelId, int], now: float
) -> HotDivision:
    """Decide anew if a review is due, or if the budget or the set of engines changed.

    `tokens` has exactly the engines to divide among, with the prompt tokens that each one's worker
    was sent so far. The shares sum to at most the budget.
    """
    elapsed = now - before.decided_at
    is_other = budget_bytes != before.budget_bytes or tokens.keys() != before.shares.keys()
    if not is_other and elapsed < REVIEW_S:
        return before
    weights = _weights(before, tokens, elapsed)
    shares = _shares(budget_bytes, weights)
    if not is_other and _is_close(before.shares, shares, budget_bytes):
        shares = dict(before.shares)
    return HotDivision(
        budget_bytes=budget_bytes,
        decided_at=now,
        tokens=dict(tokens),
        weights=weights,
        shares=shares,
    )


def _weights(
    before: HotDivision, tokens: Mapping[ModelId, int], elapsed: float
) -> dict[ModelId, float]:
    fades = 0.5 ** (elapsed / HALF_LIFE_S)
    found = {}
    for model, total in tokens.items():
        seen = before.tokens.get(model, 0)
        recent = total - seen if total >= seen else total  # another worker counts from 0
        found[model] = before.weights.get(model, 0.0) * fades + recent
    return found


def _shares(budget: int, weights: Mapping[ModelId, float]) -> dict[ModelId, int]:
    if not weights:
        return {}
    total = sum(map(Fraction, weights.values()))  # exact: a float's sum could pass the budget
    if not total:
        return dict.fromkeys(weights, budget // len(weights))
    even = int(budget * EVEN_PART) // len(weights)
    rest = budget - even * len(weights)
    return {model: even + int(rest * Fraction(w) / total) for model, w in weights.items()}


def _is_close(before: Mapping[ModelId, int], now: Mapping[ModelId, int], budget: int) -> bool:
    return all(abs(before[model] - share) <= budget * LEAST_CHANGE for model, share in now.items())
