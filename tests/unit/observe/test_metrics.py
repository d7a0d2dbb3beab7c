from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from omlxd.observe.metrics import Gauges, Metrics, ModelGauges

CONTRACT = {
    "omlxd_requests_running",
    "omlxd_requests_waiting",
    "omlxd_prompt_tokens",
    "omlxd_output_tokens",
    "omlxd_prefix_cache_tokens",
    "omlxd_time_to_first_token_seconds",
    "omlxd_inter_token_latency_seconds",
    "omlxd_request_duration_seconds",
    "omlxd_config_generation",
    "omlxd_config_observed_generation",
    "omlxd_config_last_reload_successful",
    "omlxd_model_state",
    "omlxd_memory_footprint_bytes",
    "omlxd_cold_bytes",
    "omlxd_cold_written_bytes",
    "omlxd_worker_restarts",
}


def samples(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return samples(metrics)[name, frozenset(labels.items())]


def finished(metrics: Metrics, **changes: Any) -> None:
    facts: dict[str, Any] = {
        "model": "m",
        "api": "chat",
        "status": 200,
        "finish_reason": "stop",
        "prompt_tokens": 100,
        "output_tokens": 7,
        "ram": 64,
        "ssd": 32,
        "computed": 4,
        "ttft_s": 0.3,
        "duration_s": 2.0,
    }
    metrics.request_finished(**(facts | changes))


def test_every_metric_of_the_contract_is_there_from_the_start() -> None:
    """A dashboard finds each name, with its type, before the first request."""
    families = {f.name: f for f in text_string_to_metric_families(Metrics().render().decode())}
    assert families.keys() >= CONTRACT
    counters = {name for name, family in families.items() if family.type == "counter"}
    assert counters == {
        "omlxd_requests",
        "omlxd_prompt_tokens",
        "omlxd_output_tokens",
        "omlxd_prefix_cache_tokens",
        "omlxd_cold_written_bytes",
        "omlxd_worker_restarts",
        "omlxd_mcp_calls",
    }
    assert all(family.documentation for family in families.values())


def test_requests_add_up_per_model() -> None:
    """Tokens, their sources and ends are summed for each model."""
    metrics = Metrics()
    finished(metrics)
    finished(metrics, ram=0, ssd=0, computed=100, finish_reason="length")
    finished(metrics, model="other", output_tokens=1)
    assert value(metrics, "omlxd_prompt_tokens_total", model="m") == 200
    assert value(metrics, "omlxd_output_tokens_total", model="m") == 14
    assert value(metrics, "omlxd_output_tokens_total", model="other") == 1
    source = {
        name: value(metrics, "omlxd_prefix_cache_tokens_total", model="m", source=name)
        for name in ("ram", "ssd", "computed")
    }
    assert source == {"ram": 64, "ssd": 32, "computed": 104}
    labels = {"model": "m", "api": "chat", "status": "200"}
    assert value(metrics, "omlxd_requests_total", **labels, finish_reason="length") == 1


def test_a_request_without_a_token_has_a_duration_but_no_first_token() -> None:
    """An error before the first token does not make the first token look fast."""
    metrics = Metrics()
    finished(metrics, ttft_s=None, status=503, finish_reason="")
    assert value(metrics, "omlxd_request_duration_seconds_count", model="m", api="chat") == 1
    assert ("omlxd_time_to_first_token_seconds_count", frozenset({("model", "m")})) not in samples(
        metrics
    )


@pytest.mark.parametrize(("seconds", "le"), [(0.3, "0.5"), (0.5, "0.5"), (2000.0, "2560.0")])
def test_first_token_buckets_reach_past_cold_loads(seconds: float, le: str) -> None:
    """An observation counts in the first bucket that holds it and in every wider one."""
    metrics = Metrics()
    finished(metrics, ttft_s=seconds)
    name = "omlxd_time_to_first_token_seconds"
    buckets = {
        dict(labels)["le"]: count
        for (sample, labels), count in samples(metrics).items()
        if sample == f"{name}_bucket"
    }
    holding = {bound for bound, count in buckets.items() if count == 1}
    assert holding == {bound for bound in buckets if float(bound) >= float(le)}
    assert value(metrics, f"{name}_sum", model="m") == seconds


def test_beyond_the_last_bucket_is_infinity() -> None:
    """What is slower than every bound is counted all the same."""
    metrics = Metrics()
    metrics.inter_token("m", 1e6)
    name = "omlxd_inter_token_latency_seconds"
    assert value(metrics, f"{name}_bucket", model="m", le="10.0") == 0
    assert value(metrics, f"{name}_bucket", model="m", le="+Inf") == 1


def test_gauges_are_the_present_and_counters_the_past() -> None:
    """A model that is gone leaves the gauges; its counts stay."""
    metrics = Metrics()
    finished(metrics)
    metrics.worker_restarted("m")
    metrics.set_gauges(Gauges(models=[ModelGauges(model="m", phase="ready", running=2)]))
    assert value(metrics, "omlxd_model_state", model="m", phase="ready") == 1
    assert value(metrics, "omlxd_requests_running", model="m") == 2
    assert value(metrics, "omlxd_requests_waiting", model="m") == 0
    metrics.set_gauges(
        Gauges(
            generation=4,
            observed_generation=3,
            reload_ok=False,
            footprint_bytes=2**40,
            cold_bytes=7,
            cold_written_bytes=15,
        )
    )
    assert value(metrics, "omlxd_config_generation") == 4
    assert value(metrics, "omlxd_config_observed_generation") == 3
    assert value(metrics, "omlxd_config_last_reload_successful") == 0
    assert value(metrics, "omlxd_memory_footprint_bytes") == 2**40
    assert value(metrics, "omlxd_cold_bytes") == 7
    assert value(metrics, "omlxd_cold_written_bytes_total") == 15
    assert value(metrics, "omlxd_worker_restarts_total", model="m") == 1
    assert not any(name == "omlxd_model_state" for name, _ in samples(metrics))


def test_label_values_are_escaped() -> None:
    """A folder with quotes and line ends in its name does not break the page."""
    metrics = Metrics()
    finished(metrics, model='a"b\\c\nd')
    assert value(metrics, "omlxd_output_tokens_total", model='a"b\\c\nd') == 7
