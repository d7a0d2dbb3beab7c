"""What one row asks for, it gets, whoever runs beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omlxd.ipc.messages import LiveSettings
from omlxd.worker.ports import ResolvedSampling, RowUsage
from tests.support.engine import GREEDY, EngineRig, solo

pytestmark = pytest.mark.mlx

PROMPT = [(37 * n) % 900 + 10 for n in range(40)]
OTHER = [(53 * n) % 900 + 10 for n in range(90)]
SEEDED = ResolvedSampling(temperature=1.0, seed=1234)


@pytest.fixture
def model(tiny_models: Path) -> Path:
    return tiny_models / "tiny-llama"


def run(model: Path, sampling: ResolvedSampling = GREEDY, **fields: Any) -> list[int]:
    """One row, alone."""
    with EngineRig(model) as rig:
        rig.submit("a", PROMPT, sampling=sampling, **fields)
        rig.wait("a")
    return rig.ids("a")


def test_max_tokens_is_exact(model: Path) -> None:
    """One token asked for is one token, with its reason."""
    with EngineRig(model) as rig:
        rig.submit("one", PROMPT, max_tokens=1)
        rig.submit("nine", PROMPT, max_tokens=9)
        rig.wait("one", "nine")
    assert [each.finish for each in rig.of("one")] == ["length"]
    assert [each.finish for each in rig.of("nine")] == [None] * 8 + ["length"]


def test_a_stop_token_ends_the_row_and_is_its_last_token(model: Path) -> None:
    """The other row, which lacks that stop token, goes on."""
    tokens, _ = solo(model, PROMPT, 12)
    stop = tokens[5]
    at = tokens.index(stop)
    with EngineRig(model) as rig:
        rig.submit("stops", PROMPT, max_tokens=12, stop_tokens=frozenset({stop}))
        rig.submit("goes on", PROMPT, max_tokens=12)
        rig.wait("stops", "goes on")
    assert rig.ids("stops") == tokens[: at + 1]
    assert rig.of("stops")[-1].finish == "stop"
    assert rig.ids("goes on") == tokens


def test_usage_comes_once_with_the_first_token(model: Path) -> None:
    """Nothing is cached yet: every prompt token was run."""
    with EngineRig(model) as rig:
        rig.submit("a", PROMPT)
        rig.wait("a")
    assert rig.usages == [RowUsage("a", 0, computed=len(PROMPT))]


def test_log_probabilities_equal_a_solo_run(model: Path) -> None:
    """The chosen token's and the likeliest three, with a neighbour that did not ask."""
    with EngineRig(model) as rig:
        rig.submit("asks", PROMPT, max_tokens=6, top_logprobs=3)
        rig.submit("chosen only", PROMPT, max_tokens=6, top_logprobs=0)
        rig.submit("does not", OTHER, max_tokens=6)
        rig.wait("asks", "does not", "chosen only")
    tokens, logprobs = solo(model, PROMPT, 6)
    for out, token, values in zip(rig.of("asks"), tokens, logprobs, strict=True):
        best = sorted(enumerate(values.tolist()), key=lambda each: -each[1])[:3]
        assert out.logprob == pytest.approx(values[token].item(), abs=1e-5)
        assert [each for each, _ in out.top] == [each for each, _ in best]
        assert [value for _, value in out.top] == pytest.approx([v for _, v in best], abs=1e-5)
    assert [each.logprob for each in rig.of("chosen only")] == [
        each.logprob for each in rig.of("asks")
    ]
    assert all(each.top == [] for each in rig.of("chosen only"))
    assert all((each.logprob, each.top) == (0.0, []) for each in rig.of("does not"))


def test_the_same_seed_draws_the_same_alone_and_in_any_batch(model: Path) -> None:
    """Neighbours of all kinds change nothing."""
    alone = run(model, SEEDED, max_tokens=24)
    with EngineRig(model) as rig:
        rig.submit("unseeded", OTHER, sampling=ResolvedSampling(), max_tokens=40)
        rig.submit("a", PROMPT, sampling=SEEDED, max_tokens=24)
        rig.submit("greedy", OTHER, max_tokens=40)
        rig.submit("same", PROMPT, sampling=SEEDED, max_tokens=24)
        rig.wait("a", "unseeded", "greedy", "same")
    assert rig.ids("a") == alone
    assert rig.ids("same") == alone
    assert rig.ids("greedy") == solo(model, OTHER, 40)[0]


def test_choices_of_one_seeded_request_differ_from_each_other(model: Path) -> None:
    """The seed of choice i is the request's plus i: reproducible, not all the same."""
    with EngineRig(model) as rig:
        rig.submit_rows(
            [rig.job("a", PROMPT, index=index, sampling=SEEDED, max_tokens=24) for index in (0, 1)]
        )
        rig.wait_for(lambda: sum(each.finish is not None for each in rig.tokens) == 2)
    assert rig.ids("a", 0) == run(model, SEEDED, max_tokens=24)
    assert rig.ids("a", 0) != rig.ids("a", 1)


def test_another_seed_draws_something_else(model: Path) -> None:
    """The seed is used at all."""
    other = ResolvedSampling(temperature=1.0, seed=99)
    assert run(model, SEEDED, max_tokens=24) != run(model, other, max_tokens=24)


def test_a_preempted_seeded_row_goes_on_with_its_chain(model: Path) -> None:
    """Rows put back to the line draw on as if nothing had been."""
    from omlxd.worker.generators import BatchLane
    from tests.support.engine import loaded

    job = EngineRig.job("a", PROMPT, sampling=SEEDED, max_tokens=24)
    whole = run(model, SEEDED, max_tokens=24)
    lane = BatchLane(loaded(model), prefill_step=2048)
    lane.insert(job, whole[:10])
    drawn: list[int] = []
    while len(drawn) < 14:
        drawn += [each.token for each in lane.step(2048).drawn]
    lane.close()
    assert drawn == whole[10:]


FILTERS: list[tuple[str, ResolvedSampling]] = [
    ("top_k", ResolvedSampling(temperature=1.5, top_k=1, seed=1)),
    ("top_p", ResolvedSampling(temperature=1.5, top_p=1e-6, seed=1)),
    ("min_p", ResolvedSampling(temperature=1.5, min_p=1.0, seed=1)),
    ("temperature", ResolvedSampling(temperature=1e-4, seed=1)),
]


@pytest.mark.parametrize(("name", "sampling"), FILTERS, ids=[name for name, _ in FILTERS])
def test_the_narrowest_filter_leaves_the_greedy_choice(
    model: Path, name: str, sampling: ResolvedSampling
) -> None:
    """Each filter takes effect: at its extreme only the likeliest token is left."""
    assert run(model, sampling) == solo(model, PROMPT, 16)[0]


def test_a_top_k_beyond_the_vocabulary_filters_nothing(model: Path) -> None:
    """It is a wish for everything, not a fault."""
    wide = ResolvedSampling(temperature=1.0, seed=1234, top_k=1 << 20)
    assert run(model, wide) == run(model, SEEDED)


def test_a_logit_bias_forbids_and_forces(model: Path) -> None:
    """-100 takes the greedy choice away, +100 makes another the only one."""
    first = solo(model, PROMPT, 1)[0][0]
    forbidden = ResolvedSampling(temperature=0, logit_bias={first: -100.0})
    forced = ResolvedSampling(temperature=0, logit_bias={123: 100.0})
    assert first not in run(model, forbidden)
    assert run(model, forced) == [123] * 16


def test_presence_and_frequency_penalties_count_the_output_only(model: Path) -> None:
    """The first token is untouched however often the prompt holds it; no token comes twice."""
    tokens, _ = solo(model, PROMPT, 1)
    prompt = PROMPT + tokens * 3 + PROMPT
    first = solo(model, prompt, 1)[0][0]
    for harsh in (
        ResolvedSampling(temperature=0, presence_penalty=50.0),
        ResolvedSampling(temperature=0, frequency_penalty=50.0),
    ):
        with EngineRig(model) as rig:
            rig.submit("a", [*prompt, first], sampling=harsh, max_tokens=1)
            rig.submit("b", prompt, sampling=harsh, max_tokens=40)
            rig.wait("a", "b")
        assert rig.ids("a") == solo(model, [*prompt, first], 1)[0]
        assert rig.ids("b")[0] == first
        assert len(set(rig.ids("b"))) == 40


def test_a_frequency_penalty_grows_with_every_repetition(model: Path) -> None:
    """Under a bias that forces one token, it gives way only when the count has paid it off."""
    sampling = ResolvedSampling(temperature=0, logit_bias={123: 100.0}, frequency_penalty=20.0)
    steady = ResolvedSampling(temperature=0, logit_bias={123: 100.0}, presence_penalty=20.0)
    tokens = run(model, sampling, max_tokens=12)
    assert tokens[:3] == [123] * 3
    assert set(tokens) != {123}
    assert run(model, steady, max_tokens=12) == [123] * 12


def test_a_repetition_penalty_counts_prompt_and_output(model: Path) -> None:
    """A forced token comes once; one that the prompt holds never."""
    sampling = ResolvedSampling(temperature=0, logit_bias={123: 100.0}, repetition_penalty=1e6)
    tokens = run(model, sampling, max_tokens=12)
    assert tokens[0] == 123
    assert 123 not in tokens[1:]
    with EngineRig(model) as rig:
        rig.submit("a", [*PROMPT, 123, 11], sampling=sampling, max_tokens=12)
        rig.wait("a")
    assert 123 not in rig.ids("a")


def test_a_cancel_in_every_phase_frees_the_slot_and_harms_no_neighbour(model: Path) -> None:
    """Queued, in prefill and in decode; the row that stays equals its solo run."""
    huge = OTHER * 40
    live = LiveSettings(max_concurrent_requests=3, prefill_step_tokens=32)
    with EngineRig(model, live) as rig:
        rig.submit("stays", PROMPT, max_tokens=120)
        rig.submit("decoding", PROMPT[:7], max_tokens=5000)
        rig.submit("prefilling", huge)
        rig.submit("queued", huge)
        rig.engine.cancel("queued")
        rig.wait_for(lambda: len(rig.of("decoding")) > 5)
        rig.engine.cancel("decoding")
        rig.engine.cancel("prefilling")
        rig.submit("next", OTHER, max_tokens=5)
        rig.submit("and next", OTHER, max_tokens=5)
        rig.wait("stays", "next", "and next")
    assert "queued" not in rig.scheduled
    assert rig.ids("prefilling") == rig.ids("queued") == []
    assert rig.ids("stays") == solo(model, PROMPT, 120)[0]
    assert rig.ids("next") == rig.ids("and next") == solo(model, OTHER, 5)[0]
    assert rig.failed == {}
