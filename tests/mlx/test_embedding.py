"""Encoders: what becomes of an input, whatever it is computed with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from omlxd.errors import EngineFailed, RequestInvalid
from omlxd.ipc.messages import LoadSettings
from omlxd.ipc.vectors import EmbedRequest, ScoreRequest
from omlxd.worker.embedding import EmbeddingModel, load_embedding
from omlxd.worker.ports import LoadError
from omlxd.worker.reranker import Classifier, YesNo, load_reranker
from tests.support.encoders import LIMIT, make_encoder, make_yes_no

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ["one", "the quick brown fox jumps over it", "a longer text " * 5, ""]


def settings(folder: Path, kind: str = "embedding") -> LoadSettings:
    return LoadSettings(model_id=folder.name, path=str(folder), kind=kind)  # type: ignore[arg-type]


def asked(inputs: list[str | list[int]], **more: object) -> EmbedRequest:
    return EmbedRequest(request_id="r", model="m", inputs=inputs, **more)  # type: ignore[arg-type]


def ranked(query: str, documents: list[str], **more: object) -> ScoreRequest:
    return ScoreRequest(
        request_id="r",
        model="m",
        query=query,
        documents=documents,
        **more,  # type: ignore[arg-type]
    )


def vectors(model: EmbeddingModel, request: EmbedRequest, *, alone: bool = False) -> np.ndarray:
    rows = model.rows(request)
    values = [model.compute([row])[0] for row in rows] if alone else model.compute(rows)
    answers = [model.answer(request, index, each) for index, each in enumerate(values)]
    return np.array([np.frombuffer(answer.values, "<f4") for answer in answers])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("encoders")


@pytest.mark.parametrize("pooling", ["", "cls_token", "mean_tokens", "max_tokens", "lasttoken"])
def test_a_batch_equals_each_input_alone(tmp_path: Path, pooling: str) -> None:
    """Under every pooling; all have unit length."""
    model = load_embedding(settings(make_encoder("tiny-bert-embed", tmp_path, pooling=pooling)))
    together, alone = vectors(model, asked([*TEXTS])), vectors(model, asked([*TEXTS]), alone=True)
    assert np.allclose(together, alone, atol=1e-5)
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)


def test_poolings_differ(tmp_path: Path) -> None:
    """The model's own file decides, not a habit."""
    found = []
    for name in ("cls_token", "mean_tokens", "max_tokens", "lasttoken"):
        made = make_encoder("tiny-bert-embed", tmp_path / name, pooling=name)
        found.append(vectors(load_embedding(settings(made)), asked(["some text"]))[0])
    assert all(not np.allclose(a, b, atol=1e-3) for a in found for b in found if a is not b)


@pytest.fixture(scope="module")
def tiny(folder: Path) -> EmbeddingModel:
    return load_embedding(settings(make_encoder("tiny-bert-embed", folder, pooling="mean_tokens")))


def test_token_ids_are_the_same_input(tiny: EmbeddingModel) -> None:
    """They come without special tokens, which are put around them."""
    [row] = tiny.rows(asked(["hello there"]))
    assert tiny.rows(asked([list(row[1:-1])])) == [row]
    assert len(tiny.rows(asked([""]))[0]) == 2


def test_what_does_not_fit_is_refused_or_cut(tiny: EmbeddingModel) -> None:
    """With both numbers; cut only if asked."""
    assert tiny.max_context == LIMIT
    long = [5] * LIMIT
    with pytest.raises(RequestInvalid, match=rf"{LIMIT} tokens; this model takes {LIMIT - 2}"):
        tiny.rows(asked(["x", long]))
    [row] = tiny.rows(asked([long], truncate=True))
    assert len(row) == LIMIT
    with pytest.raises(RequestInvalid, match="token 99999") as refused:
        tiny.rows(asked(["x", [99_999]]))
    assert refused.value.param == "input[1]"


def test_fewer_dimensions_are_a_unit_vector_too(tiny: EmbeddingModel) -> None:
    """The first of them, made longer again."""
    whole, cut = vectors(tiny, asked(["x"]))[0], vectors(tiny, asked(["x"], dimensions=5))[0]
    assert np.allclose(cut, whole[:5] / np.linalg.norm(whole[:5]), atol=1e-6)
    with pytest.raises(RequestInvalid, match="dimensions is 33"):
        vectors(tiny, asked(["x"], dimensions=33))


def test_what_is_no_number_is_not_sent(tiny: EmbeddingModel) -> None:
    """A client would store it."""
    with pytest.raises(EngineFailed, match="input 3"):
        tiny.answer(asked(["x"]), 3, [1.0, float("nan")])


def test_a_request_of_the_wrong_kind(tiny: EmbeddingModel) -> None:
    """Is refused by the model that got it."""
    with pytest.raises(RequestInvalid, match="does not rank"):
        tiny.rows(ranked("q", ["d"]))


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    """Says what was to be loaded, from where."""
    for load in (load_embedding, load_reranker):
        with pytest.raises(LoadError, match=str(tmp_path)) as failed:
            load(settings(tmp_path))
        assert failed.value.permanent


# ------------------------------------------------------------------ rerankers


@pytest.fixture(scope="module", params=["tiny-bert-reranker", "tiny-xlmr-reranker", "yes-no"])
def reranker(request: pytest.FixtureRequest, folder: Path) -> Classifier | YesNo:
    if request.param == "yes-no":
        return load_reranker(settings(make_yes_no(folder), "reranker"))
    return load_reranker(settings(make_encoder(request.param, folder), "reranker"))


def test_scores_of_a_batch_are_those_of_each_pair(reranker: Classifier | YesNo) -> None:
    """Between 0 and 1, and not all the same."""
    asked_for = ranked("what is it", [text or "x" for text in TEXTS])
    rows = reranker.rows(asked_for)
    together = [
        reranker.answer(asked_for, i, v).score for i, v in enumerate(reranker.compute(rows))
    ]
    alone = [
        reranker.answer(asked_for, i, reranker.compute([r])[0]).score for i, r in enumerate(rows)
    ]
    assert np.allclose(together, alone, atol=1e-5)
    assert all(0 <= score <= 1 for score in together)
    assert len({round(score, 6) for score in together}) > 1


def test_long_documents_are_cut_and_long_queries_refused(reranker: Classifier | YesNo) -> None:
    """A document loses its end unless that is forbidden."""
    long = "word " * 9_000
    [row] = reranker.rows(ranked("q", [long]))
    assert len(row) == reranker.max_context
    with pytest.raises(RequestInvalid, match=r"documents\[1\]"):
        reranker.rows(ranked("q", ["x", long], truncate=False))
    with pytest.raises(RequestInvalid, match="Shorten the query"):
        reranker.rows(ranked(long, ["some document of a few words, more than that"]))


def test_a_classifier_takes_the_pair_as_the_tokenizer_makes_it(folder: Path) -> None:
    """Token by token, and with the same types."""
    model = load_reranker(settings(folder / "tiny-bert-reranker", "reranker"))
    assert isinstance(model, Classifier)
    [row] = model.rows(ranked("one two", ["three four"]))
    pair = model._tokenizer("one two", "three four")
    assert list(row) == pair["input_ids"]
    if model._has_types:
        assert model._types([row], len(row)).tolist()[0] == pair["token_type_ids"]


# ------------------------------------------------------------------ the real one

# The model card's own sentences; cosines from a float64 computation with the same weights.
SENTENCES = ["This is an example sentence", "Each sentence is converted", "A man is eating food."]


@pytest.fixture(scope="module")
def minilm() -> EmbeddingModel:
    name = "all-MiniLM-L6-v2"
    fetch = [sys.executable, str(ROOT / "scripts" / "fetch_model.py"), name]
    subprocess.run(fetch, check=True, cwd=ROOT / "scripts", stdout=subprocess.DEVNULL)
    return load_embedding(settings(ROOT / ".models" / name))


def test_the_real_model_has_the_known_cosines(minilm: EmbeddingModel) -> None:
    """Mean pooling, 256 tokens, 384 dimensions, and the similarities that others find."""
    found = vectors(minilm, asked([*SENTENCES]))
    assert found.shape == (3, 384)
    assert minilm.max_context == 256
    cosines = found @ found.T
    assert cosines[0, 1] == pytest.approx(0.404559, abs=1e-4)
    assert cosines[0, 2] == pytest.approx(-0.030241, abs=1e-4)


def test_the_real_model_batches(minilm: EmbeddingModel) -> None:
    """Inputs of all lengths up to the limit, together and alone."""
    texts: list[str | list[int]] = [" ".join(["word"] * length) for length in (1, 7, 64, 127, 254)]
    together, alone = vectors(minilm, asked(texts)), vectors(minilm, asked(texts), alone=True)
    assert np.allclose(together, alone, atol=1e-5)
