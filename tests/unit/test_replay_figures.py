"""The figures of the HTTP replay benchmark: what is counted, and when a bar is passed."""

from __future__ import annotations

import pytest

from benchmarks.replay_figures import (
    MB,
    Bar,
    Kind,
    Row,
    Run,
    Sample,
    distinct_tokens,
    kv_bytes_per_token,
    rows,
    table,
)

LLAMA = {
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "hidden_size": 576,
}


def _sample(workload: str, kind: Kind, ttft_s: float) -> Sample:
    return Sample(
        workload=workload,
        kind=kind,
        conversation="A",
        turn=1,
        ttft_s=ttft_s,
        total_s=ttft_s,
        prompt_tokens=10,
        cached_tokens=None,
        output_tokens=1,
        text="",
    )


def _row(made: list[Row], name: str) -> Row:
    return next(row for row in made if name in row.name)


def test_tokens_of_a_shared_start_count_once() -> None:
    """Sequences count what no earlier one starts with, whichever earlier one that is."""
    assert distinct_tokens([[1, 2, 3], [1, 2, 3, 4], [7], [1, 2, 9, 9], [7, 8], [1, 2]]) == 8
    assert distinct_tokens([]) == 0


def test_kv_size_comes_from_the_attention_heads() -> None:
    """Keys and values of every layer's KV heads; a head_dim in the config wins."""
    assert kv_bytes_per_token(LLAMA, 4) == 2 * 30 * 3 * 64 * 4
    assert (
        kv_bytes_per_token({"text_config": {**LLAMA, "head_dim": 128}}, 2) == 2 * 30 * 3 * 128 * 2
    )


@pytest.mark.parametrize(
    "other",
    [
        {"kv_lora_rank": 512},
        {"sliding_window": 4096},
        {"layer_types": ["linear_attention", "full_attention"]},
        {"num_hidden_layers": None},
    ],
)
def test_kv_size_is_unknown_for_other_layers(other: dict[str, object]) -> None:
    """Where a layer's KV does not grow by the token there is no figure, not a wrong one."""
    assert kv_bytes_per_token({**LLAMA, **other}, 4) is None


def test_a_sliding_window_that_is_switched_off_is_none() -> None:
    """Some models name a window that they do not use."""
    off = {"sliding_window": 4096, "use_sliding_window": False}
    assert kv_bytes_per_token({**LLAMA, **off}, 4) == kv_bytes_per_token(LLAMA, 4)


def test_a_bar_holds_up_to_its_limit() -> None:
    """The limit itself is ok, anything above is over, and without a limit there is no verdict."""
    assert Bar(1.05, "x", 1.05).verdict == "ok"
    assert Bar(1.0501, "x", 1.05).verdict == "over"
    assert Bar(9.0, "x").verdict == ""


def test_later_turns_are_held_against_the_peer() -> None:
    """The agent's bar is the ratio of the servers' medians of warm turns over all runs."""
    runs = [
        Run("omlxd", [_sample("agent", "warm", s) for s in (1.0, 2.0)]),
        Run("mlx_lm", [_sample("agent", "warm", s) for s in (2.0, 9.0, 1.0)]),
        Run("omlxd", [_sample("agent", "warm", 6.0), _sample("agent", "cold", 99.0)]),
    ]
    row = _row(rows(runs, None), "later turns")
    assert row.cells == ("2,000 ms", "2,000 ms")
    assert row.bar == Bar(1.0, "x", 1.05)


def test_after_a_restart_omlxd_is_held_against_itself() -> None:
    """Repeat and next turn are ratios to omlxd's own warm turn, not to the peer's."""
    ours: list[tuple[Kind, float]] = [("warm", 1.0), ("resumed", 1.4), ("repeat", 0.4)]
    runs = [
        Run("mlx_lm", [_sample("restart", kind, 8.0) for kind, _ in ours]),
        Run("omlxd", [_sample("restart", kind, seconds) for kind, seconds in ours]),
    ]
    made = rows(runs, None)
    assert _row(made, "next turn after").bar == Bar(1.4, "x", 1.3)
    assert _row(made, "request again").bar == Bar(0.4, "x", 0.5)


def test_memory_and_disk() -> None:
    """Memory is a difference to the peer; disk a ratio to the KV of distinct tokens."""
    runs = [
        Run("omlxd", memory_bytes={"at rest": 900 * MB}, disk_bytes=220, distinct_tokens=10),
        Run("mlx_lm", memory_bytes={"at rest": 700 * MB}),
    ]
    made = rows(runs, 20)
    assert _row(made, "memory").bar == Bar(200.0, "MB", 100)
    assert _row(made, "disk").bar == Bar(1.1, "x", 1.1)
    assert _row(rows(runs, None), "disk").bar is None


def test_one_server_has_figures_but_no_ratio_to_a_peer() -> None:
    """A run of omlxd alone prints what it measured and passes no verdict against nobody."""
    run = Run("omlxd", [_sample("agent", "warm", 1.0)], memory_bytes={"at rest": MB})
    text = table(["omlxd"], rows([run], None), markdown=False)
    assert "1,000 ms" in text
    assert not [line for line in text.splitlines()[1:] if line.endswith(("ok", "over"))]


def test_the_markdown_table_has_as_many_cells_in_every_line() -> None:
    """Name, one cell for each server, the figure, the bar and the verdict."""
    run = Run("omlxd", [_sample("restart", kind, 1.0) for kind in ("warm", "repeat")])
    lines = table(["omlxd", "mlx_lm"], rows([run, Run("mlx_lm")], None), markdown=True).splitlines()
    assert {line.count("|") for line in lines} == {7}
    assert any("1.00x | ≤ 0.50x | over |" in line for line in lines)
