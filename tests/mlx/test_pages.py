"""A row restored from pieces draws what a cold row draws, for every class of cache."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from omlxd.worker.pages import Pages, PagesError
from omlxd.worker.pages_kinds import KINDS, leaves
from omlxd.worker.piece import BlockPieces, Piece
from tests.support.engine import loaded, make_llama4, solo
from tests.support.models import TINY_LLMS
from tests.support.pages import CutRow, Span, draw, pages_of, run_and_cut

pytestmark = pytest.mark.mlx

BLOCK = 16
STEP = 64
COUNT = 24
LAYOUTS = {  # grows, window, recurrent
    "tiny-llama": (True, 0, False),
    "tiny-qwen3": (True, 0, False),
    "tiny-gemma3": (True, 32, False),
    "tiny-qwen3-next": (True, 0, True),
    "tiny-lfm2": (True, 0, True),
    "tiny-falcon-h1": (True, 0, True),
    "tiny-qwen3-moe": (True, 0, False),
}


def tokens(count: int, seed: int) -> list[int]:
    source = random.Random(seed)
    return [source.randrange(8, 1000) for _ in range(count)]


def held(piece: Piece | None) -> int | None:
    return None if piece is None else piece.tokens


@pytest.fixture(scope="module")
def rows(tiny_models: Path) -> dict[str, CutRow]:
    """A row of 100 prompt tokens and 45 of reply, per model."""
    return {
        name: run_and_cut(
            loaded(tiny_models / name), tokens(100, 1), 45, block_tokens=BLOCK, step=STEP, stride=48
        )
        for name in TINY_LLMS
    }


@pytest.mark.parametrize("name", TINY_LLMS)
def test_the_layout_says_which_entries_a_model_has(tiny_models: Path, name: str) -> None:
    """Every architecture is recognised by the caches that it makes."""
    layout = pages_of(loaded(tiny_models / name)).layout(64)
    assert (layout.grows, layout.window, layout.recurrent) == LAYOUTS[name]


@pytest.mark.parametrize("name", TINY_LLMS)
def test_restored_rows_in_one_batch_draw_what_cold_rows_draw(
    tiny_models: Path, rows: dict[str, CutRow], name: str
) -> None:
    """Points in prompt and reply, on boundaries and in tails, beside a cold row."""
    model, row = loaded(tiny_models / name), rows[name]
    new = tokens(20, 2)
    points = [48, 96, 99, 112, 128, 144, 145]
    prompts = [[*row.tokens[:point], *new] for point in points]
    rest = [*(p[point:] for p, point in zip(prompts, points, strict=True)), new]
    drawn = draw(model, rest, [*map(row.join, points), None], COUNT, step=STEP)
    for point, prompt, got in zip([*points, 0], [*prompts, new], drawn, strict=True):
        assert got == solo(tiny_models / name, prompt, COUNT)[0], f"restored at {point}"


@pytest.mark.parametrize("name", TINY_LLMS)
def test_a_restored_row_has_the_log_probabilities_of_a_cold_one(
    tiny_models: Path, rows: dict[str, CutRow], name: str
) -> None:
    """Not only the likeliest token: all of them, to rounding."""
    model, row, new = loaded(tiny_models / name), rows[name], tokens(5, 3)
    logits = model(mx.array([new]), cache=row.join(99))[0, -1]
    restored = logits - mx.logsumexp(logits, keepdims=True)
    _, (cold, *_) = solo(tiny_models / name, [*row.tokens[:99], *new], 1)
    assert mx.abs(restored - cold).max().item() < 1e-4


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-qwen3"])
def test_a_point_inside_a_block_takes_the_front_of_it(
    tiny_models: Path, rows: dict[str, CutRow], name: str
) -> None:
    """A prompt that diverges inside a block reuses it to the token."""
    model, row, new = loaded(tiny_models / name), rows[name], tokens(9, 4)
    points = [1, 15, 17, 90, 130]
    caches = [row.pages.join(p, row.run((p + BLOCK - 1) // BLOCK * BLOCK)) for p in points]
    for point, got in zip(points, draw(model, [new] * 5, caches, 8, step=STEP), strict=True):
        assert got == solo(tiny_models / name, [*row.tokens[:point], *new], 8)[0]


def test_a_window_joins_from_pieces_of_several_cuts(tiny_models: Path) -> None:
    """Points before, at and past the window's length; short steps leave short pieces."""
    model = tiny_models / "tiny-gemma3"
    prompt = tokens(71, 5)
    row = run_and_cut(loaded(model), prompt, 1, block_tokens=8, step=8, stride=8)
    for point in (8, 24, 32, 40, 64, 70):
        (got,) = draw(loaded(model), [prompt[point:]], [row.join(point)], 40, step=STEP)
        assert got == solo(model, prompt, 40)[0], f"restored at {point}"


def test_a_model_that_runs_alone_goes_on_from_pieces(tmp_path: Path) -> None:
    """Chunked caches have no batch; they are cut and joined as they are."""
    from mlx_lm.generate import generate_step

    model = loaded(make_llama4(tmp_path))
    prompt = tokens(90, 6)
    row = CutRow(pages_of(model), BLOCK)
    caches = _fresh(model)
    for start in range(0, 80, 20):
        mx.eval(model(mx.array([prompt[start : start + 20]]), cache=caches))
        row.cut(caches, start + 20)
    for point in (20, 32, 40, 60, 64, 80):
        rest = mx.array(prompt[point:])
        steps = list(generate_step(rest, model, max_tokens=30, prompt_cache=row.join(point)))
        cold, _ = solo(tmp_path / "tiny-llama4", prompt, 30)
        assert [token for token, _ in steps] == cold, f"restored at {point}"
    restored = model(mx.array([prompt[60:61]]), cache=row.join(60))[0, -1]
    assert mx.abs(restored - model(mx.array([prompt[:61]]))[0, -1]).max().item() < 1e-4


def test_a_ring_that_has_wrapped_is_cut_in_the_order_of_tokens(tiny_models: Path) -> None:
    """Caches of a row that ran alone give the same window as those of a batch."""
    model, prompt = loaded(tiny_models / "tiny-gemma3"), tokens(60, 7)
    caches = _fresh(model)
    for token in prompt:
        mx.eval(model(mx.array([[token]]), cache=caches))
    row = CutRow(pages_of(model), BLOCK)
    row.cut(caches, 60)
    (got,) = draw(model, [tokens(3, 8)], [row.join(60)], COUNT, step=STEP)
    assert got == solo(tiny_models / "tiny-gemma3", [*prompt, *tokens(3, 8)], COUNT)[0]


@pytest.mark.parametrize("name", TINY_LLMS)
def test_rows_that_share_pieces_do_not_change_them(tiny_models: Path, name: str) -> None:
    """Two rows go on from one block in different ways; the block stays as it was."""
    model, prompt = loaded(tiny_models / name), tokens(64, 14)
    caches = _fresh(model)
    mx.eval(model(mx.array([prompt]), cache=caches))
    row = CutRow(pages_of(model), 64)
    row.cut(caches, 64)
    before = {span: [array.tolist() for array in p.arrays] for span, p in row.pieces.items()}
    assert len(before) == len(row.pages.layout(64).kinds)
    for seed in (9, 10):
        joined = row.join(64)
        for token in tokens(3, seed):
            mx.eval(model(mx.array([[token]]), cache=joined))
    after = {span: [array.tolist() for array in p.arrays] for span, p in row.pieces.items()}
    assert after == before


@pytest.mark.parametrize("name", TINY_LLMS)
def test_a_piece_holds_no_more_memory_than_it_counts(tiny_models: Path, name: str) -> None:
    """A view would hold the whole row; MLX lets an array that is alone keep 16 KiB more."""
    model = loaded(tiny_models / name)
    row = CutRow(pages_of(model), BLOCK)
    mx.synchronize()
    before = mx.get_active_memory()
    caches = _fresh(model)
    mx.eval(model(mx.array([tokens(500, 11)]), cache=caches))
    row.cut(caches, 500)
    for span in [span for span in row.pieces if span.start not in (0, 480)]:
        del row.pieces[span]
    del caches
    mx.synchronize()
    counted = sum(piece.nbytes for piece in row.pieces.values())
    arrays = sum(len(piece.arrays) for piece in row.pieces.values())
    assert counted <= mx.get_active_memory() - before <= counted + 16_384 * arrays


def test_caches_joined_in_another_thread_serve_in_this_one(
    tiny_models: Path, rows: dict[str, CutRow]
) -> None:
    """All that is handed out is evaluated, so no array is bound to a thread."""
    model, row = loaded(tiny_models / "tiny-gemma3"), rows["tiny-gemma3"]
    joined: list[Any] = []

    def join() -> None:
        joined.append(row.join(99))
        mx.synchronize()
        mx.clear_streams()

    thread = threading.Thread(target=join)
    thread.start()
    thread.join()
    (got,) = draw(model, [row.tokens[99:104]], joined, COUNT, step=STEP)
    assert got == solo(tiny_models / "tiny-gemma3", row.tokens[:104], COUNT)[0]


def test_what_the_caches_do_not_hold_is_not_cut(tiny_models: Path) -> None:
    """Tokens to come, a state elsewhere, a window that has moved on, a row that never ran."""
    for name in ("tiny-gemma3", "tiny-qwen3-next"):
        model = loaded(tiny_models / name)
        pages, caches = pages_of(model), _fresh(model)
        kinds = pages.layout(BLOCK).kinds
        assert pages.cut(caches, [Span(kind, 0, BLOCK) for kind in kinds], 0) == [None, None]
        mx.eval(model(mx.array([tokens(60, 12)]), cache=caches))
        mx.eval(model(mx.array([tokens(40, 13)]), cache=caches))
        assert pages.cut(caches, [Span(kind, 96, 112) for kind in kinds], 100) == [None, None]
        kv, other = pages.cut(caches, [Span(kind, 0, BLOCK) for kind in kinds], 100)
        assert held(kv) == BLOCK
        assert other is None
    pages = pages_of(loaded(tiny_models / "tiny-llama"))
    assert pages.cut(_fresh(loaded(tiny_models / "tiny-llama")), [Span("window", 0, 4)], 0) == [
        None
    ]


def test_a_window_piece_tells_how_much_of_its_block_it_holds(tiny_models: Path) -> None:
    """Of the block that the window's edge runs through, the end is kept."""
    model = loaded(tiny_models / "tiny-gemma3")
    pages, caches = pages_of(model), _fresh(model)
    for part in (60, 40):
        mx.eval(model(mx.array([tokens(part, part)]), cache=caches))
    spans = [
        Span("window", 16, 32),
        Span("window", 32, 48),
    ]  # 31 tokens before the last 40 are kept
    edge, inside = pages.cut(caches, spans, 100)
    assert (held(edge), held(inside)) == (3, 16)


def test_a_join_without_all_it_needs_says_what_is_missing(
    tiny_models: Path, rows: dict[str, CutRow]
) -> None:
    """Holes, short windows, states elsewhere and pieces of other models are errors."""
    gemma, hybrid = rows["tiny-gemma3"], rows["tiny-qwen3-next"]
    run = gemma.run(99)
    gone = [run[0], BlockPieces(tokens=16, window=run[1].window), *run[2:]]
    with pytest.raises(PagesError, match="kv piece is missing"):
        gemma.pages.join(99, gone)
    with pytest.raises(PagesError, match="window piece is missing"):
        gemma.pages.join(99, [*run[:-1], BlockPieces(tokens=3, kv=run[-1].kv)])
    with pytest.raises(PagesError, match="begins at"):
        gemma.pages.join(99, [*run[:4], *_short_window(run[4]), *run[5:]])
    with pytest.raises(PagesError, match="point piece is missing"):
        hybrid.join(32)
    with pytest.raises(PagesError, match="no state can be had at 90"):
        hybrid.pages.join(90, hybrid.run(96))
    with pytest.raises(PagesError, match="is wanted"):
        hybrid.pages.join(99, run)
    for point in (96, 100, 0):
        with pytest.raises(PagesError, match="does not end at"):
            gemma.pages.join(point, run)


def test_caches_of_another_model_are_refused(tiny_models: Path) -> None:
    """Other classes, other shapes and another number of tokens are told apart."""
    llama, gemma = (loaded(tiny_models / name) for name in ("tiny-llama", "tiny-gemma3"))
    pages, caches = pages_of(llama), _fresh(llama)
    mx.eval(llama(mx.array([[1, 2, 3, 4]]), cache=caches))
    with pytest.raises(PagesError, match="no caches of this model"):
        pages.cut(_fresh(gemma), [Span("kv", 0, 4)], 4)
    with pytest.raises(PagesError, match="stands at 4 tokens, not at 5"):
        pages.cut(caches, [Span("kv", 0, 4)], 5)
    caches[1].keys = caches[1].keys.astype(mx.float16)
    with pytest.raises(PagesError, match="was seen at load"):
        pages.cut(caches, [Span("kv", 0, 4)], 4)


def _fresh(model: Any) -> list[Any]:
    from mlx_lm.models.cache import make_prompt_cache

    return list(make_prompt_cache(model))


def _short_window(block: BlockPieces) -> list[BlockPieces]:
    assert block.window is not None
    arrays = tuple(array[:, :, -2:] for array in block.window.arrays)
    window = type(block.window)("window", 2, arrays)
    return [BlockPieces(tokens=block.tokens, kv=block.kv, window=window)]


def test_every_class_in_the_table_is_used_by_a_model_here(
    tiny_models: Path, tmp_path: Path
) -> None:
    """No class of `KINDS` goes untested."""
    models = [*(loaded(tiny_models / name) for name in TINY_LLMS), loaded(make_llama4(tmp_path))]
    seen = {type(leaf) for model in models for leaf in leaves(_fresh(model))}
    assert seen == set(KINDS)
    assert all(isinstance(Pages.inspect(model), Pages) for model in models)
