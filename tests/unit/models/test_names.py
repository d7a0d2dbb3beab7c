"""From the name a client sends to the id of a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from omlxd.errors import ModelNotFound
from omlxd.models.card import ModelCard
from omlxd.models.names import resolve


def _cards(*ids: str, broken: tuple[str, ...] = ()) -> dict[str, ModelCard]:
    return {
        id_: ModelCard(id=id_, path=Path("/m", id_), names=(id_,), servable=id_ not in broken)
        for id_ in (*ids, *broken)
    }


@pytest.mark.parametrize(
    ("name", "id_"),
    [
        ("org/Qwen3-4B", "org/Qwen3-4B"),
        ("Qwen3-4B", "org/Qwen3-4B"),
        ("small", "org/Qwen3-4B"),
        ("Llama", "Llama"),
        ("a/Twin", "a/Twin"),
        ("b/Twin", "b/Twin"),
        ("Half", "a/Half"),
    ],
)
def test_a_name_leads_to_one_model(name: str, id_: str) -> None:
    """By id, alias, or short name; a short name prefers what can be served."""
    cards = _cards("org/Qwen3-4B", "Llama", "a/Twin", "b/Twin", "a/Half", broken=("b/Half",))
    assert resolve(name, cards, {"small": "org/Qwen3-4B"}) == id_


def test_a_declared_model_answers_to_its_folder_too() -> None:
    """The TOML key is the id; the path under the model folder, and its last part, still work."""
    card = ModelCard(id="main", path=Path("/m/org/Qwen"), names=("org/Qwen",), declared=True)
    assert [resolve(name, {"main": card}, {}) for name in ("main", "org/Qwen", "Qwen")] == [
        "main"
    ] * 3


def test_an_unservable_model_still_has_its_name() -> None:
    """Naming is not serving: the card says why it cannot be served."""
    assert resolve("Bad", _cards(broken=("org/Bad",)), {}) == "org/Bad"


def test_an_ambiguous_short_name_lists_what_it_can_mean() -> None:
    """Neither of two models is guessed."""
    with pytest.raises(ModelNotFound, match="can mean a/Twin, b/Twin; use the full name"):
        resolve("Twin", _cards("a/Twin", "b/Twin"), {})


def test_an_unknown_name_lists_what_exists_and_the_closest() -> None:
    """The error carries every servable id and alias, and a near miss."""
    with pytest.raises(ModelNotFound) as caught:
        resolve("qwen3-4b", _cards("Qwen3-4B", "Llama", broken=("Bad",)), {"small": "Llama"})
    assert caught.value.message == (
        "model 'qwen3-4b' does not exist (did you mean 'Qwen3-4B'?); there are: "
        "Llama, Qwen3-4B, small"
    )
    assert caught.value.param == "model"


def test_an_empty_house_says_so() -> None:
    """With nothing servable the error points at the list of what was found."""
    with pytest.raises(ModelNotFound, match="no model can be served, see omlxctl models"):
        resolve("any", {}, {})
