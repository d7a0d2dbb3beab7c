"""plan in a simulated world, driven at random: what must hold whatever happens."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from omlxd.ipc.messages import LiveSettings
from omlxd.reconcile import events
from omlxd.reconcile.admission import FAIR_WAIT_S
from omlxd.reconcile.phases import WITH_WORKER, broken_invariants
from tests.unit.reconcile.build import load_of, spec
from tests.unit.reconcile.world import World

MODELS = st.sampled_from("ABCD")
FLAG = st.booleans()


class AnyWorld(RuleBasedStateMachine):
    """Four models, room for about two; every rule is one fact, followed by passes until rest."""

    @initialize(sizes=st.lists(st.integers(10, 70), min_size=4, max_size=4), pin=FLAG)
    def begin(self, sizes: list[int], pin: bool) -> None:
        specs = [
            spec(model, estimate_bytes=size, ttl_s=30.0 if model in "AB" else None)
            for model, size in zip("ABCD", sizes, strict=True)
        ]
        self.world = World(replace(specs[0], pin=pin), *specs[1:], limit=100)
        self.world.reconcile()

    @rule(model=MODELS, count=st.integers(1, 3))
    def request(self, model: str, count: int) -> None:
        for _ in range(count):
            self.world.request(model)
        self.world.reconcile()

    @rule(model=MODELS)
    def give_up(self, model: str) -> None:
        self.world.give_up(model)
        self.world.reconcile()

    @rule(model=MODELS)
    def finish(self, model: str) -> None:
        self.world.finish(model)
        self.world.reconcile()

    @rule(model=MODELS, steps=st.integers(1, 3))
    def step(self, model: str, steps: int) -> None:
        for _ in range(steps):
            self.world.step(model)
            self.world.reconcile()

    @rule(model=MODELS)
    def die(self, model: str) -> None:
        self.world.exit(model, "killed by SIGKILL")
        self.world.reconcile()

    @rule(model=MODELS, permanent=FLAG)
    def curse(self, model: str, permanent: bool) -> None:
        self.world.cursed[model] = permanent

    @rule(model=MODELS)
    def mend_files(self, model: str) -> None:
        self.world.cursed.pop(model, None)
        self._edit(model, load=load_of(model, files=f"at {self.world.now}"))

    @rule(model=MODELS, size=st.integers(1, 120))
    def grow(self, model: str, size: int) -> None:
        self.world.fact(model, lambda e: events.on_footprint(e, footprint_bytes=size))
        self.world.reconcile()

    @rule(seconds=st.sampled_from([0.5, 5.0, 31.0, FAIR_WAIT_S, 101.0, 700.0]))
    def wait(self, seconds: float) -> None:
        self.world.now += seconds
        self.world.reconcile()

    @rule(model=MODELS, pin=FLAG)
    def set_pin(self, model: str, pin: bool) -> None:
        self._edit(model, pin=pin)

    @rule(model=MODELS, preload=FLAG)
    def set_preload(self, model: str, preload: bool) -> None:
        self._edit(model, preload=preload)

    @rule(model=MODELS, block_tokens=st.sampled_from([32, 64]))
    def set_load(self, model: str, block_tokens: int) -> None:
        self._edit(model, load=load_of(model, block_tokens=block_tokens))

    @rule(model=MODELS, queue=st.integers(1, 2))
    def set_live(self, model: str, queue: int) -> None:
        self._edit(model, live=LiveSettings(max_queue=queue))

    @rule(model=MODELS)
    def remove(self, model: str) -> None:
        self.world.edit(model, None)
        self.world.reconcile()

    @rule(limit=st.sampled_from([60, 100, 150]))
    def set_limit(self, limit: int) -> None:
        self.world.desired = replace(self.world.desired, memory_limit_bytes=limit)
        self.world.reconcile()

    @rule(model=MODELS)
    def load(self, model: str) -> None:
        self.world.fact(model, lambda e: events.on_load_requested(e, self.world.now))
        self.world.reconcile()

    @rule(model=MODELS)
    def unload(self, model: str) -> None:
        wanted = self.world.desired.engines.get(model)
        if not (wanted and wanted.pin):
            self.world.fact(model, events.on_unload_requested)
            self.world.reconcile()

    def _edit(self, model: str, **changes: object) -> None:
        wanted = self.world.desired.engines.get(model) or spec(model, estimate_bytes=20)
        self.world.edit(model, replace(wanted, **changes))  # type: ignore[arg-type]
        self.world.reconcile()

    def teardown(self) -> None:
        """Once nothing comes from outside, everyone is answered and the plan is empty."""
        if not hasattr(self, "world"):
            return
        world = self.world
        made = world.come_to_rest()
        assert made.actions == ()
        for model, engine in world.engines.items():
            assert broken_invariants(engine) == []
            assert not engine.is_busy, f"{model} never came to rest: {engine}"
            assert not engine.load_requested, f"omlxctl load {model} was never answered"
            assert (engine.phase in WITH_WORKER) == (model in world.workers)
            if model not in world.desired.engines:
                assert engine.phase == "absent", f"{model} was removed and is {engine.phase}"
        for model, wanted in world.desired.engines.items():
            engine = world.engine(model)
            if engine.phase == "ready":
                assert (engine.load, engine.live) == (wanted.load, wanted.live)
            elif wanted.pin:
                assert engine.phase == "failed" or model in made.cannot_fit
        assert set(made.waits) == made.cannot_fit
        assert world.spares == world.desired.spare_workers


AnyWorld.TestCase.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
TestAnyWorld = AnyWorld.TestCase


def test_a_model_too_slow_to_load_ends_as_a_crash_loop() -> None:
    """Five starts past their deadline are refused to whoever waits, and forgotten on `load`."""
    world = World(spec("A"), limit=100)
    world.request("A")
    for _ in range(5):
        world.reconcile()
        world.now += 100.0
        world.reconcile()
        world.step("A")
        world.now += world.reconcile().requeue_after or 0.0
    assert world.engine("A").failure_reason == "CrashLoop"
    assert [(refusal.model, refusal.code) for refusal in world.refused] == [
        ("A", "model_unavailable")
    ]
    world.fact("A", lambda e: events.on_load_requested(e, world.now))
    world.come_to_rest()
    assert world.engine("A").phase == "ready"


def test_a_hundred_requests_for_bad_files_load_once() -> None:
    """A model that cannot load is tried once; later requests are refused without a load."""
    world = World(spec("A", load=load_of("A", files="bad")), limit=100)
    world.cursed["A"] = True
    for _ in range(100):
        world.request("A")
        world.come_to_rest()
    assert world.engine("A").deaths == (world.now,)
    assert len(world.refused) == 100
    del world.cursed["A"]
    world.edit("A", spec("A", load=load_of("A", files="good")))
    world.request("A")
    world.come_to_rest()
    assert world.served == ["A"]


def test_two_models_that_exclude_each_other_both_get_served() -> None:
    """Under requests for both that never pause, neither is starved and nobody is refused."""
    world = World(spec("A", estimate_bytes=60), spec("B", estimate_bytes=60), limit=100)
    for second in range(400):
        for model in "AB":
            # Two overlapping requests at any time: the engine is never idle by itself.
            if world.engine(model).waiting + world.engine(model).in_flight < 2:
                world.request(model)
            world.step(model)
            if second % 3 == 0 and world.engine(model).in_flight:
                world.finish(model)
        world.reconcile()
        world.now += 1.0
    assert world.refused == []
    assert min(world.served.count("A"), world.served.count("B")) > 30


def test_what_was_loaded_is_loaded_again_with_its_new_settings() -> None:
    """Unpinned and idle too: it is replaced, and its TTL begins with the new load."""
    world = World(spec("A", ttl_s=50.0), limit=100)
    world.request("A")
    for _ in range(3):
        world.reconcile()
        world.step("A")
    world.finish("A")
    world.now += 40.0
    changed = load_of("A", block_tokens=32)
    world.edit("A", spec("A", ttl_s=50.0, load=changed))
    for _ in range(4):
        world.reconcile()
        world.step("A")
    assert (world.engine("A").phase, world.engine("A").load) == ("ready", changed)
    assert world.reconcile().requeue_after == 50.0
    world.now += 50.0
    world.reconcile()
    world.step("A")
    world.reconcile()
    assert world.engine("A").phase == "absent"


def test_settings_that_come_back_take_the_drain_back() -> None:
    """Behind a long stream, a change and its undoing cost nobody anything."""
    world = World(spec("A"), limit=100)
    world.request("A")
    for _ in range(3):
        world.reconcile()
        world.step("A")
    world.edit("A", spec("A", load=load_of("A", block_tokens=32)))
    world.reconcile()
    world.request("A")
    world.reconcile()
    assert (world.engine("A").phase, world.engine("A").waiting) == ("draining", 1)
    world.edit("A", spec("A"))
    world.reconcile()
    assert (world.engine("A").phase, world.engine("A").in_flight) == ("ready", 2)


def test_unload_under_fire_never_makes_a_second_copy() -> None:
    """Unload with a request right behind, five times: it waits for the end, then loads once."""
    world = World(spec("A"), limit=100)
    for _ in range(5):
        world.request("A")
        world.reconcile()
        world.come_to_rest()
        world.fact("A", events.on_unload_requested)
        world.request("A")
        world.reconcile()
        assert world.workers == {"A"}
        world.come_to_rest()
    assert world.served == ["A"] * 10
    assert world.workers == {"A"}
