"""Best of N: the lowest motion loss among the videos that move."""

import json

import numpy as np
import pytest
from tiny import save_tiny, tiny_pipeline

from phys_pipeline.adapters import adapter_names, inject_lora, save_adapter
from phys_pipeline.errors import ConfigError
from phys_pipeline.families import load_model
from phys_pipeline.media import read_video
from phys_pipeline.pipelines import best as module
from phys_pipeline.pipelines import generate, generate_best, generate_pair
from phys_pipeline.pipelines.best import Candidate, candidate_table, judged

PROMPT = "a red ball"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load_model(str(save_tiny(tmp_path_factory.mktemp("best") / "tiny")))


@pytest.fixture(scope="module")
def adapter(tmp_path_factory):
    pipeline = tiny_pipeline()
    for parameter in inject_lora(pipeline.transformer, 4, 8.0, seed=0):
        parameter.data.add_(0.1)
    return save_adapter(
        pipeline.transformer, tmp_path_factory.mktemp("best") / "adapter", family="hunyuan_video", base_model="tiny"
    )


def candidates(*pairs):
    return [Candidate(seed, loss, degree) for seed, (loss, degree) in enumerate(pairs)]


@pytest.mark.parametrize(
    ("pairs", "winner"),
    [
        ([(0.5, 0.2), (0.3, 0.2), (0.4, 0.3)], 1),
        ([(0.5, 0.2), (0.0, 0.0), (0.4, 0.3)], 2),  # a frozen clip has no loss
        ([(0.0, 0.001), (0.1, 0.002), (0.0, 0.0), (0.9, 0.2)], 3),  # even where most are frozen
        ([(0.5, 0.2), (0.1, 0.05), (0.4, 0.3)], 2),  # hardly moves beside the others
        ([(0.4, 0.2), (0.4, 0.2)], 0),
        ([(0.1, 0.001), (0.2, 0.004)], 1),  # none moves: the one that moves most
    ],
)
def test_the_most_coherent_of_those_that_move_wins(pairs, winner):
    place, marked = judged(candidates(*pairs))
    assert place == winner and len(marked) == len(pairs)
    assert not any(c.moves for c in marked if c.dynamic_degree < 0.01)


def test_the_winner_is_the_video_of_its_seed_and_all_are_kept(model, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LEAST_DYNAMIC", 0.0)  # random pictures hardly move
    stages = []
    best = generate_best(
        model, PROMPT, 3, seed=5, keep_all=tmp_path / "all", progress=lambda stage, step, total: stages.append(stage)
    )
    (result,) = best.values()
    assert [c.seed for c in result.candidates] == [5, 6, 7] and {"generated, seed 5", "generated, seed 7"} <= set(stages)
    moving = [c for c in result.candidates if c.moves]
    assert result.seed == min(moving, key=lambda c: c.loss).seed
    assert len({c.loss for c in result.candidates}) == 3
    expected = generate(model, PROMPT, result.seed)
    assert np.array_equal(result.video.frames, expected.frames) and result.video.fps == expected.fps
    assert np.array_equal(result.video.timestamps, expected.timestamps)
    assert sorted(p.name for p in (tmp_path / "all").iterdir()) == [
        "candidates.json",
        *(f"generated-seed-{s}.mp4" for s in (5, 6, 7)),
    ]
    written = json.loads((tmp_path / "all" / "candidates.json").read_text())
    assert written["best_of"]["generated"]["seed"] == result.seed and len(written["best_of"]["generated"]["candidates"]) == 3
    assert len(read_video(tmp_path / "all" / "generated-seed-6.mp4")) == 5
    assert candidate_table(best).count("\n") == 3 and "best" in candidate_table(best)


def test_base_and_adapter_get_the_same_seeds(model, adapter):
    best = generate_best(model, PROMPT, 2, adapter, seed=1)
    assert list(best) == ["baseline", "physics"]
    assert [[c.seed for c in result.candidates] for result in best.values()] == [[1, 2], [1, 2]]
    pair = generate_pair(model, PROMPT, adapter, best["physics"].seed)
    assert np.array_equal(best["physics"].video.frames, pair.physics.frames)
    assert np.array_equal(best["baseline"].video.frames, generate(model, PROMPT, best["baseline"].seed).frames)
    assert adapter_names(model.pipeline.transformer) == []
    assert list(generate_best(model, PROMPT, 1, adapter, baseline=False)) == ["physics"]


def test_none_at_all_is_an_error(model):
    with pytest.raises(ConfigError, match="use at least 1"):
        generate_best(model, PROMPT, 0)
