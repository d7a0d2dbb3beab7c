"""Each trap of the batch generator springs here, and the neighbours lose nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omlxd.sched.rows import RowKey
from omlxd.worker.generators import BatchLane, job_sampling
from omlxd.worker.lanes import StepOutcome
from omlxd.worker.lm_solo import SoloLane
from omlxd.worker.ports import RowJob
from omlxd.worker.sampling import Processor, RowSampling, Sampler
from tests.support.engine import BreaksOn, EngineRig, loaded, make_llama4, solo

pytestmark = pytest.mark.mlx

GOOD = [(41 * n) % 900 + 10 for n in range(50)]
BAD = [(43 * n) % 900 + 10 for n in range(30)]
STEP = 64


def fails(*_: Any) -> Any:
    raise ArithmeticError("no token left to draw")


def faulty_sampler(job: RowJob, drawn: int) -> RowSampling:
    return RowSampling(Sampler(fails)) if job.request_id == "bad" else job_sampling(job, drawn)


def faulty_processor(job: RowJob, drawn: int) -> RowSampling:
    sampling = job_sampling(job, drawn)
    if job.request_id != "bad":
        return sampling
    return RowSampling(sampling.sampler, [Processor(fails)])


def steps(lane: Any, until: Callable[[list[StepOutcome]], bool]) -> list[StepOutcome]:
    done: list[StepOutcome] = []
    while not until(done):
        assert len(done) < 500
        done.append(lane.step(STEP))
    return done


def drawn(outcomes: list[StepOutcome], name: str) -> list[int]:
    return [each.token for one in outcomes for each in one.drawn if each.key.request_id == name]


@pytest.fixture
def model(tiny_models: Path) -> Path:
    return tiny_models / "tiny-llama"


@pytest.mark.parametrize("make_sampling", [faulty_sampler, faulty_processor])
def test_a_sampler_or_processor_that_raises_is_told_and_costs_the_neighbour_nothing(
    model: Path, make_sampling: Any
) -> None:
    """The fault is in the outcome with its row; the other row draws on, exactly."""
    lane = BatchLane(loaded(model), prefill_step=STEP, make_sampling=make_sampling)
    lane.insert(EngineRig.job("good", GOOD), [])
    before = steps(lane, lambda done: len(drawn(done, "good")) == 3)
    lane.insert(EngineRig.job("bad", BAD), [])
    outcomes = steps(lane, lambda done: bool(done and done[-1].failed))
    [(key, error)] = outcomes[-1].failed
    assert (key, str(error)) == (RowKey("bad", 0), "no token left to draw")
    lane.remove([key])
    after = steps(lane, lambda done: len(drawn(done, "good")) == 10)
    tokens = drawn([*before, *outcomes, *after], "good")
    assert tokens == solo(model, GOOD, len(tokens))[0]
    assert not any(one.failed for one in after)
    lane.close()


def test_a_shared_sampler_forgets_its_fault_once_it_is_told(model: Path) -> None:
    """Later rows with the same parameters are not failed for it."""
    shared = Sampler(fails)
    lane = BatchLane(
        loaded(model), prefill_step=STEP, make_sampling=lambda job, drawn: RowSampling(shared)
    )
    lane.insert(EngineRig.job("a", GOOD), [])
    outcomes = steps(lane, lambda done: bool(done and done[-1].failed))
    assert [key.request_id for key, _ in outcomes[-1].failed] == ["a"]
    assert shared.error is None
    lane.close()


def test_a_step_that_breaks_in_prefill_gives_the_streams_their_tokens(model: Path) -> None:
    """The generator drops what it had drawn; it is read again, and the stream has no hole."""
    broken = BreaksOn(loaded(model), token=1001)
    lane = BatchLane(broken, prefill_step=STEP)
    lane.insert(EngineRig.job("stream", GOOD), [])
    before = steps(lane, lambda done: len(drawn(done, "stream")) == 4)
    lane.insert(EngineRig.job("bad", [*BAD, 1001, *BAD]), [])
    lane.insert(EngineRig.job("beside", BAD), [])
    outcome = lane.step(STEP)
    assert outcome.fault is not None
    assert outcome.fault.phase == "prefill"
    assert {key.request_id for key in outcome.fault.suspects} == {"bad", "beside"}
    assert len(outcome.drawn) == 1
    lane.remove(outcome.fault.suspects)
    lane.insert(EngineRig.job("beside", BAD), [])
    after = steps(lane, lambda done: len(drawn(done, "beside")) == 5)
    tokens = drawn([*before, outcome, *after], "stream")
    assert tokens == solo(model, GOOD, len(tokens))[0]
    assert drawn(after, "beside") == solo(model, BAD, 5)[0]
    lane.close()


def test_a_step_that_breaks_while_a_row_joins_blames_the_row_that_joined(model: Path) -> None:
    """Its last prompt token is run at the join; the row is gone from the generator by then."""
    broken = BreaksOn(loaded(model), token=1001)
    lane = BatchLane(broken, prefill_step=STEP)
    lane.insert(EngineRig.job("stream", GOOD), [])
    before = steps(lane, lambda done: len(drawn(done, "stream")) == 4)
    lane.insert(EngineRig.job("bad", [*BAD, 1001]), [])
    outcomes = steps(lane, lambda done: bool(done and done[-1].fault))
    fault = outcomes[-1].fault
    assert fault is not None
    assert (fault.phase, [key.request_id for key in fault.suspects]) == ("prefill", ["bad"])
    lane.remove(fault.suspects)
    after = steps(lane, lambda done: len(drawn(done, "stream")) == 5)
    tokens = drawn([*before, *outcomes, *after], "stream")
    assert tokens == solo(model, GOOD, len(tokens))[0]
    lane.close()


def test_a_step_that_breaks_in_decode_suspects_every_row_that_decodes(model: Path) -> None:
    """No token was drawn, so nobody can be told apart; a row in prefill is no suspect."""
    tokens, _ = solo(model, GOOD, 6)
    broken = BreaksOn(loaded(model), token=tokens[3])
    lane = BatchLane(broken, prefill_step=STEP)
    lane.insert(EngineRig.job("one", GOOD), [])
    outcomes = steps(lane, lambda done: bool(done and done[-1].fault))
    fault = outcomes[-1].fault
    assert fault is not None
    assert (fault.phase, [key.request_id for key in fault.suspects]) == ("decode", ["one"])
    broken.armed = False
    lane.remove(fault.suspects)
    lane.insert(EngineRig.job("next", BAD), [])
    after = steps(lane, lambda done: len(drawn(done, "next")) == 5)
    assert drawn(after, "next") == solo(model, BAD, 5)[0]
    lane.close()


def test_a_solo_lane_tells_faults_like_a_batch_does(tmp_path: Path) -> None:
    """A row's own fault, and a step that breaks."""
    folder = make_llama4(tmp_path)
    lane = SoloLane(loaded(folder), make_sampling=faulty_sampler)
    lane.insert(EngineRig.job("bad", BAD), [])
    outcomes = steps(lane, lambda done: bool(done and done[-1].failed))
    assert drawn(outcomes, "bad") == []
    lane.remove([RowKey("bad", 0)])
    broken = BreaksOn(loaded(folder), token=1001)
    lane = SoloLane(broken)
    lane.insert(EngineRig.job("kernel", [*BAD, 1001, 5]), [])
    fault = lane.step(STEP).fault
    assert fault is not None
    assert (fault.phase, [key.request_id for key in fault.suspects]) == ("prefill", ["kernel"])


def test_padding_counts_as_prompt_tokens_of_the_step(model: Path) -> None:
    """Two ragged rows cost two of the wider; that is what the pace is measured by."""
    lane = BatchLane(loaded(model), prefill_step=STEP)
    lane.insert(EngineRig.job("a", [9] * 41), [])
    lane.insert(EngineRig.job("b", [9] * 11), [])
    outcome = lane.step(STEP)
    assert outcome.prefill_tokens == 2 * 40
    assert {each.key.request_id: each.computed_tokens for each in outcome.progress} == {
        "a": 40,
        "b": 10,
    }
    lane.close()
