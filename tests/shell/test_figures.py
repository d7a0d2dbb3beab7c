"""What earlier loads showed, across restarts."""

from __future__ import annotations

from pathlib import Path

from omlxd.daemon.catalog import Figures
from omlxd.daemon.figures import FiguresStore
from omlxd.ipc.messages import Loaded


def loaded(kv: int = 8) -> Loaded:
    return Loaded(
        duration_s=1.0, weights_bytes=1000, max_context=1, batches=True, kv_bytes_per_token=kv
    )


def test_a_measurement_outlives_the_daemon(tmp_path: Path) -> None:
    """The overhead is the footprint without the weights; it is there after a restart."""
    path = tmp_path / "state" / "figures.json"
    store = FiguresStore(path)
    assert store.by_model == {}
    assert store.measured("m", 1500, loaded())
    assert FiguresStore(path).by_model == {"m": Figures(overhead_bytes=500, kv_bytes_per_token=8)}


def test_noise_is_no_news(tmp_path: Path) -> None:
    """Within 1% nothing is said, so that loads do not make one another's plans anew."""
    store = FiguresStore(tmp_path / "figures.json")
    store.measured("m", 11_000, loaded())
    assert not store.measured("m", 11_099, loaded())
    assert store.measured("m", 12_000, loaded())
    assert store.measured("m", 500, loaded())  # below the weights: no overhead, not less
    assert store.by_model["m"].overhead_bytes == 0


def test_another_size_of_a_token_is_news(tmp_path: Path) -> None:
    """New weights under the name of the old: the KV estimate follows although overhead is equal."""
    store = FiguresStore(tmp_path / "figures.json")
    store.measured("m", 1500, loaded(kv=8))
    assert store.measured("m", 1500, loaded(kv=16))
    assert store.by_model["m"].kv_bytes_per_token == 16


def test_a_file_that_cannot_be_used_costs_nothing_else(tmp_path: Path) -> None:
    """Torn or in the way: the store begins anew, and goes on when it cannot write."""
    path = tmp_path / "figures.json"
    path.write_text('{"m": {"overhead')
    assert FiguresStore(path).by_model == {}
    path.unlink()
    path.mkdir()
    store = FiguresStore(path)
    assert store.measured("m", 1500, loaded())
    assert store.by_model["m"].overhead_bytes == 500
