"""Samplers are shared where they may be, total, and keep to their own keys."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest

from omlxd.worker.ports import ResolvedSampling
from omlxd.worker.sampling import Processor, Sampler, row_sampling, token_logprobs

pytestmark = pytest.mark.mlx

WARM = ResolvedSampling(temperature=0.7, top_p=0.9)
LOGITS = mx.array([[0.1, 0.5, 3.0, 0.2, 2.9, -1.0]])


def logprobs(logits: Any = LOGITS) -> Any:
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)


def sampler(sampling: ResolvedSampling, index: int = 0, drawn: int = 0) -> Sampler:
    return row_sampling(sampling, index=index, prompt_tokens=1, drawn=drawn).sampler


def fails(*_: Any) -> Any:
    raise ArithmeticError("no")


def test_rows_with_the_same_parameters_share_one_object() -> None:
    """The generator draws rows with one object in one call."""
    assert sampler(WARM) is sampler(ResolvedSampling(temperature=0.7, top_p=0.9))
    assert sampler(WARM) is not sampler(ResolvedSampling(temperature=0.7, top_p=0.8))


def test_a_seeded_row_has_a_sampler_of_its_own_unless_it_is_greedy() -> None:
    """A shared chain would depend on the neighbours; greedy draws nothing."""
    seeded = ResolvedSampling(temperature=1, seed=1)
    assert sampler(seeded) is not sampler(seeded)
    greedy = ResolvedSampling(temperature=0, seed=1)
    assert sampler(greedy) is sampler(ResolvedSampling(temperature=0))


@pytest.mark.parametrize("seed", [0, -1, 1 << 70])
def test_any_whole_number_is_a_seed(seed: int) -> None:
    """Clients send what they like; equal seeds draw equal chains."""
    seeded = ResolvedSampling(temperature=3, seed=seed)
    one, two = sampler(seeded), sampler(seeded)
    chain = [one(logprobs()).item() for _ in range(20)]
    assert [two(logprobs()).item() for _ in range(20)] == chain
    assert one.error is None
    later = sampler(seeded, drawn=5)
    assert [later(logprobs()).item() for _ in range(15)] == chain[5:]


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    """Two tokens hold nearly nine tenths; the others are never drawn."""
    draw = sampler(ResolvedSampling(temperature=5, top_p=0.8, seed=4))
    assert {draw(logprobs()).item() for _ in range(60)} == {2, 4}


def test_min_p_is_relative_to_the_likeliest() -> None:
    """Half the likeliest leaves the two that are near it."""
    draw = sampler(ResolvedSampling(temperature=5, min_p=0.5, seed=4))
    assert {draw(logprobs()).item() for _ in range(60)} == {2, 4}


def test_top_k_keeps_that_many() -> None:
    """Three of six."""
    draw = sampler(ResolvedSampling(temperature=9, top_k=3, seed=4))
    assert {draw(logprobs()).item() for _ in range(90)} == {1, 2, 4}


def test_faults_are_kept_and_safe_values_returned() -> None:
    """The best token, the same logits."""
    broken = Sampler(fails)
    assert broken(logprobs()).item() == 2
    assert isinstance(broken.error, ArithmeticError)
    process = Processor(fails)
    assert process(mx.array([1]), LOGITS) is LOGITS
    assert isinstance(process.error, ArithmeticError)


def test_no_parameter_means_no_processor() -> None:
    """Rows without penalties cost the batch nothing."""
    assert row_sampling(WARM, index=0, prompt_tokens=3).processors == []


def test_log_probabilities_are_read_likeliest_first() -> None:
    """None asks for nothing, 0 for the chosen token's alone, and more than there are for all."""
    values = logprobs()[0]
    assert token_logprobs(values, 1, None) == (0.0, [])
    chosen, top = token_logprobs(values, 1, 0)
    assert chosen == pytest.approx(values[1].item())
    assert top == []
    _, top = token_logprobs(values, 1, 2)
    assert [token for token, _ in top] == [2, 4]
    assert len(token_logprobs(values, 1, 99)[1]) == 6


def test_half_precision_log_probabilities_can_be_read() -> None:
    """NumPy has no bfloat16."""
    chosen, _ = token_logprobs(logprobs()[0].astype(mx.bfloat16), 2, 1)
    assert chosen == pytest.approx(logprobs()[0, 2].item(), abs=0.02)
