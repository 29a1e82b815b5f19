"""The preparation of frames equals that of transformers' own processors (their Pillow backend)."""

import cv2
import numpy as np
import pytest
import torch
from tiny_evaluation import noise

from phys_pipeline.evaluation.metrics.pixels import (
    BICUBIC,
    BILINEAR,
    CLIP_NORMALISATION,
    IMAGENET_NORMALISATION,
    aliased,
    center_cropped,
    normalised,
    short_side_scaled,
    squashed,
)

SIZES = [(40, 56), (57, 33), (32, 32), (20, 31)]


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_as_clip(height, width):
    processors = pytest.importorskip("transformers.models.clip.image_processing_pil_clip")
    frames = list(noise(2, height, width))
    processor = processors.CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    own = normalised((center_cropped(short_side_scaled(frame, 32, BICUBIC), 32) for frame in frames), CLIP_NORMALISATION)
    torch.testing.assert_close(own, processor(images=frames, return_tensors="pt")["pixel_values"], atol=2e-6, rtol=0)


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_as_blip(height, width):
    processors = pytest.importorskip("transformers.models.blip.image_processing_pil_blip")
    frames = list(noise(2, height, width))
    processor = processors.BlipImageProcessorPil(size={"height": 32, "width": 32})
    own = normalised((squashed(frame, 32, BICUBIC) for frame in frames), CLIP_NORMALISATION)
    torch.testing.assert_close(own, processor(images=frames, return_tensors="pt")["pixel_values"], atol=2e-6, rtol=0)


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_as_videomae(height, width):
    processors = pytest.importorskip("transformers.models.videomae.image_processing_pil_videomae")
    frames = list(noise(2, height, width))
    mean, std = IMAGENET_NORMALISATION
    processor = processors.VideoMAEImageProcessorPil(
        size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}, image_mean=mean, image_std=std
    )
    own = normalised((center_cropped(short_side_scaled(frame, 32, BILINEAR), 32) for frame in frames), IMAGENET_NORMALISATION)
    torch.testing.assert_close(own, processor(frames, return_tensors="pt")["pixel_values"][0], atol=2e-6, rtol=0)


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_aliased_is_opencv_scaling_but_for_rounding(height, width):
    frame = noise(1, height, width)[0]
    own = aliased([frame], 24, 24)[0].permute(1, 2, 0).numpy()
    assert np.abs(own - cv2.resize(frame, (24, 24))).max() < 1.01


def test_aliased_keeps_the_range_and_the_size():
    frame = noise(1)[0]
    same = aliased([frame], *frame.shape[:2])
    assert same.shape == (1, 3, 40, 56)
    np.testing.assert_array_equal(same[0].permute(1, 2, 0).numpy(), frame)
