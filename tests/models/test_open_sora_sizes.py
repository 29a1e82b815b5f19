import golden_data
import pytest
import torch

from phys_pipeline.errors import ConfigError
from phys_pipeline.models.open_sora_sizes import SECONDS, evenly_spaced_sigmas, picture_size, timestep_shift
from phys_pipeline.models.open_sora_vae import latent_frames
from phys_pipeline.noise_path import shift_sigma


def test_shifted_noise_levels_are_the_reference_s():
    golden = golden_data.group("rflow_v12", "timestep_transform.")
    for (height, width, frames), expected in zip(golden["height_width_frames"].tolist(), golden["t_out"], strict=True):
        shift = timestep_shift(int(frames), int(height), int(width))
        torch.testing.assert_close(1000 * shift_sigma(golden["t_in"] / 1000, shift), expected, atol=1e-3, rtol=1e-6)


def test_the_shift_counts_whole_chunks_of_17_frames():
    assert timestep_shift(1, 512, 512) == 1.0
    assert timestep_shift(40, 512, 512) == pytest.approx(10**0.5)  # although 40 frames are 12 latents


def test_noise_levels_before_the_shift():
    assert evenly_spaced_sigmas(4) == [1.0, 0.75, 0.5, 0.25]


@pytest.mark.parametrize("frames", [2, 5, 16])
def test_lengths_without_a_schedule_are_refused(frames):
    with pytest.raises(ConfigError, match=f"{frames} frames: .* no noise schedule for 2 to 16"):
        timestep_shift(frames, 480, 848)


def test_sizes_are_height_by_width():
    assert picture_size("240p", "9:16") == (240, 426) and picture_size("240p", "16:9") == (426, 240)
    assert picture_size("480p") == (480, 854) and picture_size("720p") == (720, 1280)
    assert picture_size("240p", "1:1") == (320, 320)
    for wrong in (("481p", "9:16"), ("480", "9:16"), ("480p", "9x16"), ("480p", "1:9"), ("480p", "1:0")):
        with pytest.raises(ConfigError, match="unknown"):
            picture_size(*wrong)


def test_released_lengths_are_whole_chunks():
    assert all(frames % 17 == 0 and latent_frames(frames) == frames // 17 * 5 for frames in SECONDS.values())
