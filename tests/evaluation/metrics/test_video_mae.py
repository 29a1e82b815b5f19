import dataclasses
import json

import numpy as np
import pytest
import torch
from tiny_evaluation import LABELS, clip_of, noise, save_clip, save_videomae

from phys_pipeline.errors import ModelError
from phys_pipeline.evaluation.metric import PROTOCOLS, Settings
from phys_pipeline.evaluation.metrics.pixels import IMAGENET_NORMALISATION, normalised
from phys_pipeline.evaluation.metrics.video_mae import ActionRecognition, clip_indices, crops


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videomae")
    return Settings(
        options={
            "clip.model": str(save_clip(folder / "tiny_clip")),
            "action_recognition.model": str(save_videomae(folder / "tiny_videomae")),
        }
    )


def ready(settings, protocol="fixed"):
    metric = ActionRecognition(dataclasses.replace(settings, protocol=protocol))
    assert metric.available().ok
    metric.setup()
    return metric


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_five_clips_spread_over_the_video(protocol):
    rows = clip_indices(164, 16, protocol)
    assert rows[:, 0].tolist() == [0, 26, 52, 77, 103] and rows[-1, -1] == 163
    assert (np.diff(rows, axis=1) == 4).all()
    assert clip_indices(61, 16, protocol).tolist() == [list(range(0, 61, 4))] * 5


def test_short_clips_are_played_back_and_forth_or_started_again():
    fixed, evalcrafter = (clip_indices(20, 16, protocol) for protocol in PROTOCOLS)
    assert fixed[0, :10].tolist() == [0, 4, 8, 12, 16, 18, 14, 10, 6, 2]
    assert evalcrafter[0, :7].tolist() == [0, 4, 8, 12, 16, 0, 4]


def test_equal_clips_count_as_often_as_they_come(settings):
    """63 frames: the five clips start at 0, 0, 1, 2 and 2."""
    metric, frames = ready(settings), noise(63, 32, 32)
    single = [metric.probabilities(frames[start : start + 61]) for start in (0, 0, 1, 2, 2)]
    assert metric.probabilities(frames) == pytest.approx(np.mean(single, axis=0), abs=1e-6)
    assert np.abs(single[0] - single[-1]).max() > 1e-4


def test_three_crops_along_the_long_side():
    assert crops(32, 64) == [(0, 0), (0, 16), (0, 32)]
    assert crops(50, 32) == [(0, 0), (9, 0), (18, 0)]
    assert crops(32, 32) == [(0, 0)]


def test_probabilities_are_the_classifiers(settings):
    """61 square frames of the model's size are one view, prepared by normalising alone."""
    metric, frames = ready(settings), noise(61, 32, 32)
    with torch.inference_mode():
        logits = metric._model(pixel_values=normalised(frames[::4], IMAGENET_NORMALISATION)[None]).logits
    expected = logits.softmax(-1)[0].numpy()
    assert metric.probabilities(frames) == pytest.approx(expected, abs=1e-6)
    assert expected.max() - expected.min() > 0.05  # the model is no constant


def test_views_are_averaged_after_the_softmax(settings):
    metric, frames = ready(settings), noise(61, 32, 64)
    single = [metric.probabilities(frames[:, :, left : left + 32]) for left in (0, 16, 32)]
    assert metric.probabilities(frames) == pytest.approx(np.mean(single, axis=0), abs=1e-6)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_sum_of_probability_times_cosine_over_the_top_five(settings, protocol):
    result = ready(settings, protocol).compute(clip_of(noise(20), labels={"action": "riding"}))["action_recognition"]
    details = result.details
    assert len(details["labels"]) == 5 and set(details["labels"]) < set(LABELS) and details["short"]
    assert details["probabilities"] == sorted(details["probabilities"], reverse=True)
    assert result.value == pytest.approx(100 * np.dot(details["probabilities"], details["cosines"]))
    assert result.backend == "tiny_videomae + tiny_clip"


def test_large_frames_are_made_smaller_with_antialiasing_but_not_by_evalcrafter(settings):
    stripes = np.zeros((96, 96, 3), np.uint8)
    stripes[:, 1::3] = 255  # a third of the columns, just those that a scaling to a third without antialiasing keeps
    grey = {protocol: ready(settings, protocol)._scaled(stripes, 32) for protocol in PROTOCOLS}
    assert grey["fixed"].shape == grey["evalcrafter"].shape == (32, 32, 3)
    assert abs(grey["fixed"].mean() - 85) < 3 and grey["evalcrafter"].mean() > 250


def test_a_certain_and_right_answer_scores_100(settings):
    metric = ready(settings)
    with torch.no_grad():
        metric._model.classifier.bias[LABELS.index("swimming")] += 1000
    frames = noise(70)
    right = metric.compute(clip_of(frames, labels={"action": "swimming"}))["action_recognition"]
    wrong = metric.compute(clip_of(frames, labels={"action": "playing chess"}))["action_recognition"]
    assert right.value == pytest.approx(100) and not right.details["short"]
    assert wrong.value < 99


def test_needs_the_label(settings):
    result = ready(settings).compute(clip_of(noise(20)))["action_recognition"]
    assert result.status == "skipped" and "action" in result.reason


def test_mean_and_deviation_come_from_the_model(settings, tmp_path):
    folder = save_videomae(tmp_path / "videomae")
    halves = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (folder / "preprocessor_config.json").write_text(json.dumps(halves))
    options = {**settings.options, "action_recognition.model": str(folder)}
    frames = noise(61, 32, 32)
    other = ready(dataclasses.replace(settings, options=options)).probabilities(frames)
    assert np.abs(other - ready(settings).probabilities(frames)).max() > 1e-3
    (folder / "preprocessor_config.json").write_text("{}")
    with pytest.raises(ModelError, match="image_mean"):
        ready(dataclasses.replace(settings, options=options))


def test_names_both_missing_models():
    reason = ActionRecognition(Settings(offline=True)).available().reason
    assert "MCG-NJU/videomae" in reason and "openai/clip" in reason and "CC-BY-NC" in reason
