"""Sampling values: what is refused, and who decides."""

from __future__ import annotations

import math
from typing import Any

import pytest

from omlxd.errors import RequestInvalid
from omlxd.ipc.messages import Sampling
from omlxd.worker.ports import ResolvedSampling
from omlxd.worker.text_sampling import check_sampling, model_sampling, resolve_sampling


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", math.nan),
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("top_p", math.inf),
        ("top_p", 1.5),
        ("top_k", -2),
        ("min_p", -0.5),
        ("repetition_penalty", 0.0),
        ("presence_penalty", 10.0),
        ("frequency_penalty", -2.5),
        ("logit_bias", {100: 1.0}),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", {5: math.nan}),
        ("logit_bias", {5: 101.0}),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name: str, value: Any) -> None:
    """The error names the parameter, so a client can tell its user which one."""
    with pytest.raises(RequestInvalid) as refused:
        check_sampling(Sampling(**{name: value}), vocabulary=100)
    assert refused.value.param == name


def test_the_edges_of_every_range_are_served() -> None:
    """The lowest and the highest value are in the range."""
    low = Sampling(
        temperature=0, top_p=0, top_k=-1, min_p=0, presence_penalty=-2, frequency_penalty=-2
    )
    high = Sampling(
        temperature=2, top_p=1, min_p=1, presence_penalty=2, logit_bias={0: -100, 99: 100}
    )
    check_sampling(low, vocabulary=100)
    check_sampling(high, vocabulary=100)


def test_the_request_decides_before_the_spec_before_the_model() -> None:
    """Each value is decided alone; what nobody names is omlxd's own default."""
    resolved = resolve_sampling(
        Sampling(temperature=0.0),
        spec=Sampling(temperature=0.5, top_p=0.6),
        model=Sampling(temperature=0.7, top_p=0.8, top_k=20),
        choice=0,
    )
    assert resolved == ResolvedSampling(temperature=0.0, top_p=0.6, top_k=20)
    assert resolve_sampling(Sampling(), spec=Sampling(), model=Sampling(), choice=0) == (
        ResolvedSampling(temperature=1.0)
    )


def test_a_seed_differs_by_choice() -> None:
    """Two choices of one seeded request are not the same text, and both can be had again."""
    seeds = [
        resolve_sampling(Sampling(seed=7), spec=Sampling(), model=Sampling(), choice=choice).seed
        for choice in range(3)
    ]
    assert seeds == [7, 8, 9]
    largest = resolve_sampling(Sampling(seed=2**63), spec=Sampling(), model=Sampling(), choice=0)
    assert largest.seed == 0


def test_a_nucleus_of_nothing_is_greedy() -> None:
    """top_p 0 keeps only the best token; to samplers 0 would mean off."""
    resolved = resolve_sampling(
        Sampling(top_p=0.0, temperature=1.0), spec=Sampling(), model=Sampling(), choice=0
    )
    assert (resolved.temperature, resolved.top_p) == (0.0, 1.0)


def test_top_k_of_minus_one_is_off() -> None:
    """-1 and 0 both mean that all tokens stay."""
    resolved = resolve_sampling(Sampling(top_k=-1), spec=Sampling(), model=Sampling(), choice=0)
    assert resolved.top_k == 0


def test_defaults_of_a_model_that_make_no_sense_are_not_used() -> None:
    """A broken generation_config.json must not break every request."""
    config = {"temperature": 0.6, "top_p": "0.9", "top_k": 20, "min_p": 7, "do_sample": True}
    assert model_sampling(config) == Sampling(temperature=0.6, top_k=20)
