"""Columns share their noise, batches that exist are kept, and the best of several is a video that moves."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from phys_pipeline.adapters.embedded import embedded_adapters
from phys_pipeline.evaluation.manifest import read_samples
from phys_pipeline.media import read_video
from phys_pipeline.media.synthetic import object_clip
from training.experiments import sampling
from training.experiments.sampling import MANIFEST, equal_compute, noise_seed, sample_column, step_passes
from training.experiments.world import Asked

ASKED = [Asked(f"p{n}", f"a red square moves right {n}", {"direction": "right"}) for n in range(5)]


@pytest.fixture
def calls(monkeypatch):
    """A model whose videos are grey, as bright as their noise seed says; returns the list of its calls."""
    made: list[list[int]] = []

    def generate(pipe, captions, noise_seeds, settings, batch):
        made.append(noise_seeds)
        return [torch.full((3, 4, 16, 16), (seed % 200) / 255) for seed in noise_seeds]

    family = SimpleNamespace(generation_defaults=lambda source: {"fps": 8, "num_inference_steps": 20, "true_cfg_scale": 2.0})
    model = SimpleNamespace(pipeline=None, family=family, source="tiny")
    monkeypatch.setattr(sampling, "generate", generate)
    monkeypatch.setattr(sampling, "base_model", lambda source: model)
    return made


def column(folder, **changes):
    given = {"seed": 7, "sampler": {}, "batch": 2, **changes}
    return sample_column(folder, "tiny", ASKED, "mine", **given)


def test_noise_is_of_the_prompt_and_seed_alone():
    seeds = {noise_seed(prompt, seed, take) for prompt in ("a", "b") for seed in (0, 1) for take in (0, 1)}
    assert len(seeds) == 8 and noise_seed("a", 0) == noise_seed("a", 0, 0)
    torch.Generator().manual_seed(max(seeds))


def test_a_column_is_readable_by_the_evaluation(tmp_path, calls):
    column(tmp_path)
    samples = read_samples([str(tmp_path / MANIFEST)])
    assert [(s.id, s.model, s.seed, s.prompt, dict(s.labels)) for s in samples] == [
        (a.id, "mine", 7, a.text, {"direction": "right"}) for a in ASKED
    ]
    assert calls == [[noise_seed(a.id, 7) for a in part] for part in (ASKED[:2], ASKED[2:4], ASKED[4:])]


def test_batches_that_are_there_are_kept_and_a_half_one_is_made_again_whole(tmp_path, calls):
    column(tmp_path)
    whole = {file.name: file.read_bytes() for file in tmp_path.glob("*.mp4")}
    (tmp_path / "p3.mp4").unlink()
    calls.clear()
    column(tmp_path)
    assert calls == [[noise_seed("p2", 7), noise_seed("p3", 7)]]
    assert {file.name: file.read_bytes() for file in tmp_path.glob("*.mp4")} == whole


def test_equal_compute_counts_passes_through_the_network():
    sampler = {"num_inference_steps": 20, "true_cfg_scale": 2.0}
    assert equal_compute(300, 4, 128, sampler) == 1 + round(3600 / 5120)
    assert equal_compute(3000, 4, 128, sampler) == 8
    assert equal_compute(3000, 4, 128, {**sampler, "true_cfg_scale": 1.0}) == 15
    assert equal_compute(1, 1, 128, sampler) == 2, "one of one is no choice"
    assert equal_compute(1000, 4, 128, sampler, step_passes(["none"])) == 3
    assert equal_compute(1000, 4, 128, sampler, step_passes(["preference", "coherence_weighted"])) == 7


def test_the_best_of_several_is_not_the_broken_one(tmp_path, calls, monkeypatch):
    even = object_clip(velocity=(1.5, 0), frames=8, centre=(20.0, 32.0)).video
    torn = even[:, [1, 0, 3, 2, 5, 4, 7, 6]]
    monkeypatch.setattr(
        sampling, "generate", lambda pipe, captions, seeds, *a, **k: [even if takes.pop() else torn for _ in seeds]
    )
    takes = [True, True, False, False]  # popped from the end: first both torn, then both even
    sample_column(tmp_path, "tiny", ASKED[:2], "best", seed=0, sampler={}, batch=2, candidates=2)
    found = torch.from_numpy(read_video(tmp_path / "p0.mp4").frames).permute(3, 0, 1, 2) / 255
    assert (found - even).abs().mean() < (found - torn).abs().mean()


def test_adapters_work_together_at_their_strengths_and_are_gone_after(tmp_path):
    """Half and half of one adapter is that adapter; the base model's videos afterwards are what they were before."""
    physics, settings = embedded_adapters()["tiny_physics"].folder, {"num_inference_steps": 2}

    def frames(name, *adapters):
        given = {"adapters": adapters, "seed": 0, "sampler": settings, "batch": 1}
        sample_column(tmp_path / name, "tiny", ASKED[:1], name, **given)
        return read_video(tmp_path / name / "p0.mp4").frames.astype(float)

    base, whole = frames("base"), frames("whole", (physics, 1.0))
    halves, double = frames("halves", (physics, 0.5), (physics, 0.5)), frames("double", (physics, 2.0))
    assert abs(whole - base).mean() > 10 * abs(halves - whole).mean() and abs(double - whole).mean() > 0.3
    assert (frames("after") == base).all()
