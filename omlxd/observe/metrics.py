"""Counts and times of everything served, in the words of Prometheus.

Observing costs a few additions; the Prometheus library is loaded at the first scrape, and only to
write its text format. Model labels are resolved ids, never what a client sent: a label value lives
as long as the daemon.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

PREFIX = "omlxd_"

# A cold load in front of a long prompt takes minutes, and a client may wait for it: hence the tail.
REQUEST_BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *(20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0, 2560.0),
)
TOKEN_BUCKETS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075),
    *(0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelGauges:
    """One model at the moment of a scrape."""

    model: str
    phase: str
    running: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """The daemon at the moment of a scrape."""

    models: Sequence[ModelGauges] = ()
    generation: int = 0
    observed_generation: int = 0
    reload_ok: bool = True
    footprint_bytes: int = 0
    cold_bytes: int = 0
    cold_written_bytes: int = 0  # by all workers, since the daemon started


class _Series:
    """One metric: a number per combination of label values."""

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        self.name = PREFIX + name
        self.text = text
        self.labels = labels
        # One without labels exists from the start, so that a rate has a zero to rise from.
        self.values: dict[tuple[str, ...], float] = {} if labels else {(): 0.0}

    def add(self, amount: float, *labels: str) -> None:
        self.values[labels] = self.values.get(labels, 0.0) + amount

    def counter(self) -> Metric:
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(self.name, self.text, labels=self.labels)
        for labels, value in self.values.items():
            family.add_metric(labels, value)
        return family

    def gauge(self) -> Metric:
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily(self.name, self.text, labels=self.labels)
        for labels, value in self.values.items():
            family.add_metric(labels, value)
        return family


class _Histogram:
    """One metric: observations per bucket and combination of label values."""

    def __init__(
        self, name: str, text: str, labels: Sequence[str], *, bounds: Sequence[float]
    ) -> None:
        self.name = PREFIX + name
        self.text = text
        self.labels = labels
        self.bounds = bounds
        self.counts: dict[tuple[str, ...], list[int]] = {}  # the last is beyond all bounds
        self.sums: dict[tuple[str, ...], float] = {}

    def observe(self, value: float, *labels: str) -> None:
        counts = self.counts.get(labels)
        if counts is None:
            counts = self.counts[labels] = [0] * (len(self.bounds) + 1)
        counts[bisect_left(self.bounds, value)] += 1
        self.sums[labels] = self.sums.get(labels, 0.0) + value

    def histogram(self) -> Metric:
        from prometheus_client.core import HistogramMetricFamily

        family = HistogramMetricFamily(self.name, self.text, labels=self.labels)
        bounds = [*map(str, self.bounds), "+Inf"]
        for labels, counts in self.counts.items():
            up_to = [float(sum(counts[: index + 1])) for index in range(len(counts))]
            family.add_metric(labels, list(zip(bounds, up_to, strict=True)), self.sums[labels])
        return family


class Metrics:
    """Owned by the daemon's event loop; not thread-safe."""

    def __init__(self) -> None:
        self._gauges = Gauges()
        self._requests = _Series(
            "requests", "Requests that ended.", ("model", "api", "status", "finish_reason")
        )
        self._prompt = _Series("prompt_tokens", "Prompt tokens of ended requests.", ("model",))
        self._output = _Series("output_tokens", "Output tokens of ended requests.", ("model",))
        self._prefix = _Series(
            "prefix_cache_tokens", "Prompt tokens by where their KV came from.", ("model", "source")
        )
        self._restarts = _Series(
            "worker_restarts", "Workers started after one died or failed to load.", ("model",)
        )
        self._tool_calls = _Series(
            "mcp_calls", "Calls of tools that omlxd ran.", ("server", "outcome")
        )
        self._ttft = _Histogram(
            "time_to_first_token_seconds",
            "From a request's arrival to its first output token.",
            ("model",),
            bounds=REQUEST_BUCKETS,
        )
        self._inter_token = _Histogram(
            "inter_token_latency_seconds",
            "Between two output tokens of one reply.",
            ("model",),
            bounds=TOKEN_BUCKETS,
        )
        self._duration = _Histogram(
            "request_duration_seconds",
            "From a request's arrival to its end.",
            ("model", "api"),
            bounds=REQUEST_BUCKETS,
        )

    def request_finished(
        self,
        *,
        model: str,
        api: str,
        status: int,
        finish_reason: str,
        prompt_tokens: int,
        output_tokens: int,
        ram: int,
        ssd: int,
        computed: int,
        ttft_s: float | None,
        duration_s: float,
    ) -> None:
        """Once per request. `ram`, `ssd`, `computed`: where the prompt tokens' KV came from."""
        self._requests.add(1, model, api, str(status), finish_reason)
        self._prompt.add(prompt_tokens, model)
        self._output.add(output_tokens, model)
        self._prefix.add(ram, model, "ram")
        self._prefix.add(ssd, model, "ssd")
        self._prefix.add(computed, model, "computed")
        if ttft_s is not None:
            self._ttft.observe(ttft_s, model)
        self._duration.observe(duration_s, model, api)

    def inter_token(self, model: str, seconds: float) -> None:
        """Time between two output tokens of one reply."""
        self._inter_token.observe(seconds, model)

    def worker_restarted(self, model: str) -> None:
        """A worker is started because the last one of this model died."""
        self._restarts.add(1, model)

    def tool_called(self, server: str, outcome: str) -> None:
        """Once per call: "ok", "error", "cancelled", or the code of an error of ours."""
        self._tool_calls.add(1, server, outcome)

    def set_gauges(self, gauges: Gauges) -> None:
        """The present, as scrapes from now on report it."""
        self._gauges = gauges

    def render(self) -> bytes:
        """Prometheus' text format, version 0.0.4."""
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)

    def collect(self) -> Iterator[Metric]:
        """What a Prometheus registry asks of a collector."""
        written = _Series("cold_written_bytes", "KV blocks written to disk.")
        written.add(self._gauges.cold_written_bytes)
        for counter in (
            *(self._requests, self._prompt, self._output, self._prefix),
            *(self._restarts, self._tool_calls, written),
        ):
            yield counter.counter()
        for histogram in (self._ttft, self._inter_token, self._duration):
            yield histogram.histogram()
        for gauge in _gauges(self._gauges):
            yield gauge.gauge()


def _gauges(now: Gauges) -> Iterator[_Series]:
    running = _Series("requests_running", "Requests in prefill or decode.", ("model",))
    waiting = _Series("requests_waiting", "Requests that wait for a slot or a model.", ("model",))
    state = _Series("model_state", "1 for the phase the model is in.", ("model", "phase"))
    for model in now.models:
        running.add(model.running, model.model)
        waiting.add(model.waiting, model.model)
        state.add(1, model.model, model.phase)
    yield from (running, waiting, state)
    single = {
        "config_generation": ("Number of the last accepted configuration.", now.generation),
        "config_observed_generation": (
            "Number of the configuration in force.",
            now.observed_generation,
        ),
        "config_last_reload_successful": ("1 if the files as they are are valid.", now.reload_ok),
        "memory_footprint_bytes": ("Memory of the daemon and its workers.", now.footprint_bytes),
        "cold_bytes": ("KV blocks on disk.", now.cold_bytes),
    }
    for name, (text, value) in single.items():
        series = _Series(name, text)
        series.add(float(value))
        yield series
