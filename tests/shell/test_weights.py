"""safetensors headers, read without the library that writes them."""

from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open

from omlxd.models.weights import Index, WeightsUnreadable, missing_shards, tensor_bytes

HEADERS = st.one_of(
    st.binary(max_size=40),
    st.dictionaries(
        st.text(max_size=3),
        st.one_of(
            st.none(),
            st.integers(),
            st.fixed_dictionaries({"data_offsets": st.lists(st.integers(), max_size=3)}),
        ),
        max_size=3,
    ).map(lambda header: json.dumps(header).encode()),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(header=HEADERS, data=st.binary(max_size=20), cut=st.integers(0, 70))
def test_any_file_is_measured_or_refused(
    tmp_path: Path, header: bytes, data: bytes, cut: int
) -> None:
    """No file makes it raise anything else, and a size is what follows the header, exactly."""
    whole = len(header).to_bytes(8, "little") + header + data
    path = tmp_path / "model.safetensors"
    path.write_bytes(whole[: len(whole) - cut] if cut < len(whole) else b"")
    try:
        size = tensor_bytes(path)
    except WeightsUnreadable:
        return
    assert (cut, size) == (0, len(data))


@pytest.mark.parametrize(
    ("offsets", "num_bytes", "is_whole"),
    [([0, 8], 8, True), ([0, 8], 7, False), ([0, 8], 9, False)],
)
def test_it_agrees_with_the_library(
    tmp_path: Path, offsets: list[int], num_bytes: int, is_whole: bool
) -> None:
    """What the library opens is measured, what it refuses is refused."""
    tensor = {"dtype": "U8", "shape": [8], "data_offsets": offsets}
    header = json.dumps({"__metadata__": {"format": "mlx"}, "w": tensor}).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(num_bytes))
    if is_whole:
        with safe_open(path, framework="np") as weights:
            assert weights.keys() == ["w"]
        assert tensor_bytes(path) == num_bytes
    else:
        with pytest.raises(SafetensorError):
            safe_open(path, framework="np")
        with pytest.raises(WeightsUnreadable, match="still being written, or cut short"):
            tensor_bytes(path)


def test_metadata_may_be_null(tmp_path: Path) -> None:
    """MLX writes it so where it was given none, and reads it."""
    path = tmp_path / "model.safetensors"
    mx.save_safetensors(str(path), {"w": mx.zeros((4, 4))})
    assert b'"__metadata__":null' in path.read_bytes()
    assert tensor_bytes(path) == 64


def test_a_header_longer_than_the_file_is_not_read(tmp_path: Path) -> None:
    """Eight bytes may claim any length; no memory is taken for it."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"\xff" * 16)
    with pytest.raises(WeightsUnreadable, match="cut short or not a safetensors file"):
        tensor_bytes(path)


def test_missing_shards_come_from_the_index_and_from_names() -> None:
    """Either tells what must be there; together they tell everything."""
    index = Index(weight_map={"a": "model-1.safetensors", "b": "model-2.safetensors"})
    names = frozenset({"model-1.safetensors", "x-00002-of-00003.safetensors"})
    assert missing_shards(names, index) == [
        "model-2.safetensors",
        "x-00001-of-00003.safetensors",
        "x-00003-of-00003.safetensors",
    ]
    assert missing_shards(frozenset({"model.safetensors"}), None) == []
