"""The model list: one shape for two families of clients."""

from __future__ import annotations

import msgspec
import pytest

from omlxd.api.ports import ServedModel
from omlxd.api.wire.models import model_entry, model_list

TINY = ServedModel(
    id="org/tiny",
    kind="llm",
    aliases=("small", "t"),
    max_context=3072,
    model_context=4096,
    max_output_tokens=1024,
    created=1700000000,
)
OTHER = ServedModel(id="other/tiny-2", kind="embedding")


def test_every_name_is_listed() -> None:
    """Ids and aliases each have an entry, and `root` leads back to the id."""
    answer = msgspec.json.decode(model_list([TINY, OTHER]))
    assert [(entry["id"], entry["root"]) for entry in answer["data"]] == [
        ("org/tiny", "org/tiny"),
        ("small", "org/tiny"),
        ("t", "org/tiny"),
        ("other/tiny-2", "other/tiny-2"),
    ]
    assert (answer["has_more"], answer["first_id"], answer["last_id"]) == (
        False,
        "org/tiny",
        "other/tiny-2",
    )


def test_windows() -> None:
    """The main figures are what is served; the architecture's window has its own name."""
    entry = msgspec.json.decode(model_list([TINY]))["data"][0]
    assert entry["max_model_len"] == entry["context_length"] == entry["max_input_tokens"] == 3072
    assert (entry["max_context_model"], entry["max_tokens"]) == (4096, 1024)
    assert (entry["created"], entry["created_at"]) == (1700000000, "2023-11-14T22:13:20+00:00")


def test_no_models() -> None:
    """An empty list is still a list."""
    answer = msgspec.json.decode(model_list([]))
    assert (answer["data"], answer["first_id"], answer["last_id"]) == ([], None, None)


@pytest.mark.parametrize(
    ("name", "shown"), [("org/tiny", "org/tiny"), ("small", "small"), ("tiny", "org/tiny")]
)
def test_one_entry(name: str, shown: str) -> None:
    """An alias is shown under its own name, whatever else led to the model under its id."""
    assert msgspec.json.decode(model_entry(TINY, name))["id"] == shown
