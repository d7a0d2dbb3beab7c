"""What the prefix cache did for one request, in sentences. Pure."""

from __future__ import annotations

from omlxctl.text import safe
from omlxd.control.cache_wire import PrefixMatch, RequestWhy

# What stands after "Not more, since".
REASONS = {
    "exact prompt": "only the last token is left, and that one always has to run",
    "nothing stored": "nothing was stored for this model yet",
    "diverged": "from there on the prompt is another than any that is stored",
    "evicted": (
        "the next block had been stored and had to make room; "
        "cache.hot and cache.cold say how much is kept"
    ),
    "never stored": "what follows was not seen before",
    "not restorable here": (
        "this model's layers can only go on from certain positions, "
        "and this is the last one before the prompt becomes another"
    ),
    "on disk, unreadable": "the file of the next block could not be read; it was dropped",
    "no room in RAM": (
        "the next block is on disk and does not fit into this engine's RAM for blocks; "
        "cache.hot sets how much there is"
    ),
}


def why_lines(why: RequestWhy) -> list[str]:
    return [safe(line) for line in _sentences(why)]


def _sentences(why: RequestWhy) -> list[str]:
    lines = [_head(why)]
    if why.match is None:
        return [*lines, _no_match(why)]
    lines.append(_sources(why, why.match))
    if why.match.donor:
        lines.append(f"The reused part was stored by {why.match.donor}.")
    lines += _difference(why.match)
    lines += _limits(why.match)
    return lines


def _head(why: RequestWhy) -> str:
    what = f"{why.request_id}: {why.api or 'a request'} to {why.model or 'a model'}"
    if not why.ended_at:
        return f"{what}, not ended yet"
    how = f" ({why.finish_reason})" if why.finish_reason else ""
    ttft = "" if why.ttft_ms is None else f"; first token after {why.ttft_ms:,.0f} ms"
    return f"{what}, ended {why.ended_at} with {why.status}{how}{ttft}"


def _no_match(why: RequestWhy) -> str:
    if why.prefix_reuse is False:
        return f"Nothing can be reused for {why.model}: {why.prefix_reuse_reason}."
    if why.error:
        return f"It ended before its prompt was looked up: {why.error}"
    return "Its prompt was not looked up in the cache."


def _sources(why: RequestWhy, match: PrefixMatch) -> str:
    if not match.ram and not match.ssd:
        found = "nothing of it was reused"
    else:
        tiers = (("RAM", match.ram), ("disk", match.ssd))
        parts = [f"{tokens:,} came from {tier}" for tier, tokens in tiers if tokens]
        found = " and ".join(parts)
    prompt = f"The prompt has {why.prompt_tokens:,} tokens: " if why.prompt_tokens else ""
    computed = f", {why.computed_tokens:,} were computed" if why.computed_tokens else ""
    return f"{prompt}{found}{computed}."


def _difference(match: PrefixMatch) -> list[str]:
    if match.diverged_at is None:
        return []
    message = "" if match.message_index is None else f", in message {match.message_index}"
    text = f": {match.excerpt!r}" if match.excerpt else ""
    place = f"at token {match.diverged_at:,}{message}"
    return [f"It first differs from the nearest stored prompt {place}{text}."]


def _limits(match: PrefixMatch) -> list[str]:
    lines = []
    if match.why_not_more:
        lines.append(f"Not more, since {REASONS.get(match.why_not_more, match.why_not_more)}.")
    if match.cold_skipped:
        lines.append(f"Blocks on disk were left there: {match.cold_skipped}.")
    return lines
