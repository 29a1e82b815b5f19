import dataclasses

import numpy as np
import pytest
import torch
from tiny_evaluation import clip_of, noise, save_blip, save_blip2

from phys_pipeline.evaluation.metric import PROTOCOLS, Settings
from phys_pipeline.evaluation.metrics.bleu import evalcrafter_bleu, prompt_bleu
from phys_pipeline.evaluation.metrics.blip_bleu import BlipBaseBleu, BlipBleu, rescored


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("blip")
    return Settings(
        options={
            "blip_bleu.model": str(save_blip2(folder / "blip2")),
            "blip_base_bleu.model": str(save_blip(folder / "blip")),
        }
    )


def ready(cls, settings, protocol="fixed"):
    metric = cls(dataclasses.replace(settings, protocol=protocol))
    assert metric.available().ok
    metric.setup()
    return metric


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("cls", "key"), [(BlipBleu, "blip_bleu"), (BlipBaseBleu, "blip_base_bleu")])
def test_captions_of_five_frames_stay_in_the_row_and_can_be_rescored(settings, cls, key, protocol):
    metric = ready(cls, settings, protocol)
    result = metric.compute(clip_of(noise(16), prompt="a dog runs"))[key]
    captions = result.details["captions"]
    assert len(captions) == 5 and all(captions) and all(caption == caption.strip() for caption in captions)
    assert not any("<image>" in caption or "[DEC]" in caption for caption in captions)
    assert result.value == rescored(captions, "a dog runs", protocol)
    assert result.details["frames"] == ([0, 4, 8, 11, 15] if protocol == "fixed" else [0, 3, 7, 11, 15])
    again = metric.compute(clip_of(noise(16), prompt="a dog runs"))[key]
    assert again.details == result.details


def test_rescoring_uses_the_protocols_bleu():
    captions, prompt = ["A red dog."], "a red dog"
    assert rescored(captions, prompt, "fixed") == 100 * prompt_bleu(captions, prompt) == pytest.approx(100)
    assert rescored(captions, prompt, "evalcrafter") == 100 * evalcrafter_bleu(captions, prompt) == pytest.approx(100 / 3)


def test_evalcrafter_shows_blue_for_red(settings, monkeypatch):
    red = np.zeros((5, 32, 40, 3), np.uint8)
    red[..., 0] = 255
    seen = {}
    for protocol in PROTOCOLS:
        metric = ready(BlipBaseBleu, settings, protocol)

        def generate(pixel_values, protocol=protocol, **how):
            seen[protocol] = pixel_values
            assert how == {"max_new_tokens": 20, "do_sample": False, "num_beams": 1}  # what EvalCrafter's call defaulted to
            return torch.full((len(pixel_values), 3), 6)

        monkeypatch.setattr(metric._model, "generate", generate)
        metric.compute(clip_of(red))
    assert seen["fixed"].shape == (5, 3, 32, 32)
    assert seen["fixed"][:, 0].min() > 1.9 and seen["fixed"][:, 2].max() < -1.4
    assert seen["evalcrafter"][:, 2].min() > 2.1 and seen["evalcrafter"][:, 0].max() < -1.7


def test_short_clips_repeat_frames(settings):
    result = ready(BlipBaseBleu, settings).compute(clip_of(noise(2)))["blip_base_bleu"]
    assert result.details["frames"] == [0, 0, 0, 1, 1]


def test_without_prompt_there_is_nothing_to_compare(settings):
    assert ready(BlipBaseBleu, settings).compute(clip_of(noise(5), prompt=""))["blip_base_bleu"].status == "skipped"


def test_missing_weights_name_the_command_and_the_size():
    available = BlipBleu(Settings(offline=True)).available()
    assert not available.ok
    assert "phys-pipeline doctor --fetch blip_bleu" in available.reason and "14979 MB" in available.reason
