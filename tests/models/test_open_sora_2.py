"""Tokens, positions, condition, shift and sizes of Open-Sora 2.0, against the golden numbers where there are any."""

import json
import math

import golden_data
import pytest
import torch

from phys_pipeline.errors import ConfigError
from phys_pipeline.models.open_sora_2 import (
    check_frames,
    condition,
    described,
    flow_shift,
    pack,
    positions,
    unpack,
    video_shift,
    video_size,
)


@pytest.fixture(scope="module")
def inputs():
    return golden_data.group("opensora2_tiny", "inputs.")


def test_packing_is_the_reference_s_and_comes_back(inputs):
    latents = inputs["i2v.latents"]  # (2, 4, 3, 6, 10)
    assert torch.equal(pack(latents), inputs["i2v.img"])
    assert torch.equal(unpack(pack(latents), 3, 6, 10), latents)
    with pytest.raises(ConfigError, match="multiples of 16"):
        pack(latents[..., :5, :])


def test_positions_count_frames_rows_and_columns(inputs):
    assert torch.equal(positions(3, 6, 10), inputs["i2v.img_ids"][0])
    assert not inputs["i2v.txt_ids"].any()


def test_the_condition_holds_the_mask_first_and_only_given_latents(inputs):
    latents, mask, given = (inputs[f"i2v.{name}"] for name in ("latents", "masks", "masked_ref"))
    assert torch.equal(pack(condition(latents, given, mask)), inputs["i2v.cond"])
    assert torch.equal(condition(latents, latents, mask)[:, 1:], latents * mask)  # what isn't given doesn't leak
    assert condition(latents).shape == (2, 5, 3, 6, 10) and not condition(latents).any()
    assert condition(latents, given[:1], mask[:1]).shape[0] == 2
    with pytest.raises(ConfigError, match="come together"):
        condition(latents, given)
    with pytest.raises(ConfigError, match="don't fit"):
        condition(latents, given[..., :8], mask)


def test_every_schedule():
    cases = json.loads((golden_data.FOLDER / "opensora2_schedule.json").read_text())
    assert len(cases) >= 4
    from diffusers import FlowMatchEulerDiscreteScheduler

    for case in cases:
        shift = case.get("flow_shift") or flow_shift(case["image_seq_len"], case["num_latent_frames"])
        scheduler, steps = FlowMatchEulerDiscreteScheduler(), case["num_steps"]
        scheduler.set_shift(shift)
        scheduler.set_timesteps(sigmas=[1 - i / steps for i in range(steps)])
        torch.testing.assert_close(scheduler.sigmas, torch.tensor(case["timesteps"]), atol=3e-7, rtol=0)
        scheduler.set_timesteps(steps)  # the default grid is another one
        assert steps < 3 or not torch.allclose(scheduler.sigmas, torch.tensor(case["timesteps"]), atol=1e-4)


def test_shift_of_a_size():
    assert video_shift(129, 256, 256) == flow_shift(256, 33) == pytest.approx(math.sqrt(33))
    assert video_shift(1, 768, 768) == flow_shift(2304, 1)
    assert video_shift(1, 16, 16) > 0


@pytest.mark.parametrize(
    ("name", "ratio", "size"),
    [("256px", "16:9", (192, 336)), ("256px", "9:16", (336, 192)), ("256px", "1:1", (256, 256)), ("768px", "16:9", (576, 1024))],
)
def test_sizes_are_width_to_height(name, ratio, size):
    assert video_size(name, ratio) == size


def test_unknown_sizes_and_frames():
    with pytest.raises(ConfigError, match="use one of 256px"):
        video_size("720p")
    check_frames(1), check_frames(129)
    for frames, message in ((0, "1 to 129"), (133, "1 to 129"), (16, "use 13 or 17")):
        with pytest.raises(ConfigError, match=message):
            check_frames(frames)


def test_the_prompt_gets_rate_and_motion_score():
    assert described("A cat.", 24, 4) == "A cat. 24 FPS. 4 motion score."
    assert described("A", 23.976, None) == "A 23.976 FPS."
    assert described("", 24, 4) == "" and described("A", None, None) == "A"
