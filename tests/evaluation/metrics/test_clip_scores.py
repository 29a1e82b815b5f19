import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tiny_evaluation import clip_of, noise, save_clip

from phys_pipeline.evaluation.metric import PROTOCOLS, Settings
from phys_pipeline.evaluation.metrics.clip_scores import ClipScores


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_clip(tmp_path_factory.mktemp("clip") / "tiny_clip")


@pytest.fixture(scope="module")
def metrics(folder):
    """The metric in each protocol, set up."""
    found = {name: ClipScores(Settings(protocol=name, options={"clip.model": str(folder)})) for name in PROTOCOLS}
    for metric in found.values():
        assert metric.available().ok
        metric.setup()
    return found


def value(metric, key, frames, **sample):
    return metric.compute(clip_of(frames, **sample))[key].value


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_frozen_clip_scores_100(metrics, protocol):
    results = metrics[protocol].compute(clip_of(np.repeat(noise(1), 6, axis=0)))
    for key in ("clip_temporal", "clip_first_frame"):
        assert results[key].value == pytest.approx(100, abs=1e-9) and results[key].value <= 100
    assert results["clip_temporal"].details["difference_per_mille"] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_two_alternating_frames(metrics, protocol):
    first, second = noise(2)
    pair = value(metrics[protocol], "clip_temporal", np.stack([first, second]))
    results = metrics[protocol].compute(clip_of(np.stack([first, second, first, second])))
    assert pair < 99.99
    assert results["clip_temporal"].value == pytest.approx(pair)
    assert results["clip_temporal"].per_frame == pytest.approx([pair] * 3)
    assert results["clip_first_frame"].value == pytest.approx((2 * pair + 100) / 3)
    assert results["clip_first_frame"].per_frame == pytest.approx([None, pair, 100, pair])


def test_reversal_does_not_matter(metrics):
    frames = noise(5)
    assert value(metrics["fixed"], "clip_temporal", frames) == pytest.approx(
        value(metrics["fixed"], "clip_temporal", frames[::-1])
    )


def test_the_fixed_time_step_does_not_see_the_rate(metrics):
    """A clip at 8 per second, and the same with every frame three times at 24 per second."""
    frames = noise(5)
    slow = metrics["fixed"].compute(clip_of(frames, 8.0))["clip_temporal"]
    fast = metrics["fixed"].compute(clip_of(np.repeat(frames, 3, axis=0), 24.0))["clip_temporal"]
    assert fast.value > slow.value
    assert fast.details["step_cosine"] == pytest.approx(slow.details["step_cosine"])
    assert slow.details["step_cosine"] == pytest.approx(slow.value)


def test_at_rates_that_the_step_does_not_divide_the_nearest_frames_are_taken(metrics):
    frames = noise(6)
    found = metrics["fixed"].compute(clip_of(frames, 10.0))["clip_temporal"].details["step_cosine"]
    assert found == pytest.approx(value(metrics["fixed"], "clip_temporal", frames[[0, 1, 2, 4, 5]]))


def test_a_rate_below_the_step_or_unknown_has_no_value_at_the_step(metrics):
    for clip in (clip_of(noise(4), None), clip_of(noise(4), 7.0)):
        details = metrics["fixed"].compute(clip)["clip_temporal"].details
        assert details["step_s"] is None and details["step_difference_per_mille"] is None


def test_equals_transformers_own_preparation_and_similarity(folder, metrics):
    from transformers import CLIPModel

    processors = pytest.importorskip("transformers.models.clip.image_processing_pil_clip")
    frames, prompt = noise(3), "a red square moves right"
    model = CLIPModel.from_pretrained(folder).eval()
    processor = processors.CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    tokens = metrics["fixed"]._encoder.tokenizer([prompt], return_tensors="pt")
    with torch.inference_mode():
        output = model(pixel_values=processor(list(frames), return_tensors="pt")["pixel_values"], **tokens)
        cosines = 100 * output.logits_per_image[:, 0] / model.logit_scale.exp()
    result = metrics["fixed"].compute(clip_of(frames, prompt=prompt))["clip_score"]
    assert result.per_frame == pytest.approx(cosines.tolist(), abs=1e-4)
    assert result.value == pytest.approx(float(cosines.mean()), abs=1e-4)


def test_evalcrafter_squashes_and_never_normalises(metrics, monkeypatch):
    seen = []
    model = metrics["evalcrafter"]._encoder.model
    monkeypatch.setattr(model, "get_image_features", lambda pixels: seen.append(pixels) or torch.ones(len(pixels), 8))
    bright = np.full((2, 40, 80, 3), 250, np.uint8)
    bright[:, :, :8] = 0  # the centre crop would not see this edge
    metrics["evalcrafter"].compute(clip_of(bright))
    assert seen[0].shape == (2, 3, 32, 32)
    assert seen[0].max() == 250 and seen[0].min() == 0
    metrics["fixed"].compute(clip_of(bright))
    assert seen[1].max() < 3 and seen[1].min() > 1.5


def test_the_output_object_and_the_bare_tensor_give_the_same(metrics, monkeypatch):
    frames, model = noise(3), metrics["fixed"]._encoder.model
    expected = value(metrics["fixed"], "clip_temporal", frames)
    own = model.get_image_features
    bare = {"get": lambda pixels: getattr(own(pixels), "pooler_output", own(pixels))}
    for wrap in (bare["get"], lambda pixels: SimpleNamespace(pooler_output=bare["get"](pixels))):
        monkeypatch.setattr(model, "get_image_features", wrap)
        assert value(metrics["fixed"], "clip_temporal", frames) == pytest.approx(expected)


def test_frames_are_encoded_once_for_all_metrics_in_chunks(folder, metrics, monkeypatch):
    sizes = []
    model = metrics["fixed"]._encoder.model
    own = model.get_image_features
    monkeypatch.setattr(model, "get_image_features", lambda pixels: sizes.append(len(pixels)) or own(pixels))
    other = ClipScores(metrics["fixed"].settings)
    other.setup()
    clip = clip_of(noise(70))
    first, second = metrics["fixed"].compute(clip), other.compute(clip)
    assert sizes == [64, 6]
    assert first["clip_score"].value == second["clip_score"].value


def test_skips_what_it_can_not_know(metrics):
    alone = metrics["fixed"].compute(clip_of(noise(1)))
    assert alone["clip_temporal"].status == alone["clip_first_frame"].status == "skipped"
    assert alone["clip_score"].status == "ok"
    assert metrics["fixed"].compute(clip_of(noise(2), prompt=""))["clip_score"].status == "skipped"


def test_a_prompt_longer_than_clip_reads_is_marked(metrics):
    results = metrics["fixed"].compute(clip_of(noise(2), prompt="a very long story " * 20))
    assert results["clip_score"].details == {"prompt_cut": True}
    assert metrics["fixed"].compute(clip_of(noise(2)))["clip_score"].details == {"prompt_cut": False}


def test_missing_weights_name_the_command(metrics):
    settings = dataclasses.replace(metrics["fixed"].settings, options={}, offline=True)
    available = ClipScores(settings).available()
    assert not available.ok and "phys-pipeline doctor --fetch clip_score" in available.reason
