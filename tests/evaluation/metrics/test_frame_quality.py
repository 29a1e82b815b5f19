"""Frame quality: known answers of the spectrum, and that spoiled frames lie farther from the clean set than clean ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from evaluation_clips import measure, texture

from phys_pipeline.errors import DataError
from phys_pipeline.evaluation import Settings, VideoSample
from phys_pipeline.evaluation.clip import DecodedClip
from phys_pipeline.evaluation.metrics.frame_quality import (
    OPTION,
    CleanSet,
    FrameQuality,
    frechet_distance,
    latent_moments,
    ring_spectrum,
    spectrum_distance,
)
from phys_pipeline.media import write_video
from phys_pipeline.media.synthetic import make_clip

FRAMES = 4


def clean(seed: int) -> torch.Tensor:
    return make_clip(seed, FRAMES, 64, 64).video


def pixels(video: torch.Tensor) -> np.ndarray:
    return (video.clamp(0, 1).permute(1, 2, 3, 0).numpy() * 255).round().astype(np.uint8)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clean")
    for seed in range(24):
        write_video(folder / f"{seed:02d}.mp4", clean(seed), fps=8.0, crf=5)
    return folder


def test_white_noise_has_its_variance_in_every_ring():
    grey = np.random.default_rng(0).normal(128, 20, (6, 96, 96, 1)).round().clip(0, 255).astype(np.uint8)
    power = np.exp(ring_spectrum(np.repeat(grey, 3, axis=3)).mean(axis=0))
    assert power == pytest.approx((20 / 255) ** 2, rel=0.25)


def test_a_wave_is_in_its_ring_and_a_flat_picture_has_rounding_alone():
    x = np.arange(64)
    wave = (128 + 60 * np.sin(2 * np.pi * 0.27 * x)).round().astype(np.uint8)  # ring 8 of 16 has 0.25 to 0.28125
    frame = np.broadcast_to(wave[None, None, :, None], (1, 64, 64, 3))
    assert int(ring_spectrum(frame)[0].argmax()) == 8
    assert np.exp(ring_spectrum(np.full((1, 64, 64, 3), 77, np.uint8))) == pytest.approx(1 / (12 * 255**2))


def test_distances_have_their_known_values():
    assert spectrum_distance(np.array([1.0, 2.0]), np.array([0.0, 0.0]), np.array([1.0, 2.0])) == pytest.approx(1.0)
    cells = np.random.default_rng(1).normal(size=(4, 500))
    own = latent_moments(cells)
    assert frechet_distance(own, own) == pytest.approx(0, abs=1e-9)
    sd = cells.std(axis=1, keepdims=True)
    moved = latent_moments(cells + 3 * sd)
    assert frechet_distance(moved, own) == pytest.approx(4 * 9)  # 3 deviations in each of 4 channels
    halved = latent_moments(cells.mean(axis=1, keepdims=True) + 0.5 * (cells - cells.mean(axis=1, keepdims=True)))
    assert frechet_distance(np.stack([halved, moved]), own) == pytest.approx([4 * 0.25, 36])  # (1 - 0.5)^2 in each
    turned = np.linalg.qr(np.random.default_rng(2).normal(size=(4, 4)))[0] @ cells
    assert frechet_distance(latent_moments(turned), own) > 0.01, "equal variances, other covariances"


def blurred(clip: torch.Tensor) -> torch.Tensor:
    return F.avg_pool2d(clip.transpose(0, 1), 7, 1, 3, count_include_pad=False).transpose(0, 1)


def speckled(clip: torch.Tensor) -> torch.Tensor:
    return clip + 0.1 * torch.randn(clip.shape, generator=torch.Generator().manual_seed(0))


def faded(clip: torch.Tensor) -> torch.Tensor:
    return clip.mean() + 0.5 * (clip - clip.mean())


def test_spoiled_frames_lie_farther_from_the_clean_set(reference):
    metric = FrameQuality(Settings(options={OPTION: str(reference)}))
    metric.setup()

    def distances(spoil) -> tuple[float, float]:
        found = []
        for seed in range(100, 112):
            sample = VideoSample("x", "m", frames=pixels(spoil(clean(seed))), fps=8.0)
            found.append(metric.compute(DecodedClip(sample, sample.decode()))["spectrum_distance"])
        moments = np.mean([result.details["latent_moments"] for result in found], axis=0)
        return float(np.mean([result.value for result in found])), float(frechet_distance(moments, CleanSet(reference).moments))

    spectrum, features = distances(lambda clip: clip)
    assert 0.5 < spectrum < 2, "about 1 for clean clips that it has not seen"
    assert distances(speckled)[0] > 1.3 * spectrum
    assert distances(blurred)[0] > 1.3 * spectrum and distances(blurred)[1] > 1.3 * features
    assert distances(faded)[1] > 1.3 * features


def test_the_order_of_the_frames_does_not_count(reference):
    frames = pixels(clean(200))
    settings = Settings(options={OPTION: str(reference)})
    there, back = (measure(f, FrameQuality, settings=settings)["spectrum_distance"] for f in (frames, frames[::-1].copy()))
    assert there.value == pytest.approx(back.value) and there.per_frame == pytest.approx(back.per_frame[::-1])


def test_another_size_is_skipped_with_its_reason(reference):
    found = measure(texture(48, 4), FrameQuality, settings=Settings(options={OPTION: str(reference)}))
    assert all(result.status == "skipped" and "48x48" in result.reason for result in found.values())


def test_without_a_clean_set_it_says_what_to_give(tmp_path):
    assert f"--option {OPTION}=FOLDER" in FrameQuality(Settings()).available().reason
    assert not FrameQuality(Settings(options={OPTION: str(tmp_path / "none")})).available().ok
    with pytest.raises(DataError, match="0 clips"):
        FrameQuality(Settings(options={OPTION: str(tmp_path)})).setup()
