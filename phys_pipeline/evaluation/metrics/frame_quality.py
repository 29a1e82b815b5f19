"""Do single frames look like those of a clean set? Spectrum of the picture, and features of the embedded autoencoder.

Both ask nothing of motion: a frozen clip of good frames has good values, so that they stand beside the motion metrics as a
check that motion was not bought with blur, speckle or faded objects. They need a folder of clean clips of the same size,
``--option frame_quality.reference=FOLDER``, and no download.

The spectrum is a number of each clip and sees blur and speckle. The features are compared as whole sets
(:func:`frechet_distance`, after Heusel et al. 2017, on the autoencoder's latent cells): they see blur and fading, speckle hardly.
Distances of single clips in feature space (nearest clean cell, Mahalanobis) called blurred clips better than clean ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from phys_pipeline.errors import DataError
from phys_pipeline.evaluation.clip import DecodedClip
from phys_pipeline.evaluation.manifest import VIDEO_SUFFIXES
from phys_pipeline.evaluation.metric import Availability, MetricInfo, MetricResult, Settings, skipped
from phys_pipeline.media import read_video

OPTION = "frame_quality.reference"
_BINS = 16  # rings of equal width from 0 to half a cycle per pixel
_LUMA = np.array([0.299, 0.587, 0.114])
_ROUNDING = 1 / (12 * 255**2)  # power per frequency of rounding to 8 bits: below it a spectrum says nothing
_LEAST_SPREAD = 0.1  # of a ring's log power between clean clips; a set of near copies would have none
_LEAST_CLIPS = 8
_STRIDE = 8  # pixels per latent of the autoencoder


def ring_spectrum(frames: np.ndarray) -> np.ndarray:
    """Log power of each frame's luma in 16 rings of spatial frequency, (T, 16).

    Hann window, mean taken off, normalised so that white noise of variance v has power v in every ring; the power of rounding
    to 8 bits is added. Pictures of at least 32 pixels a side have a frequency in every ring.
    """
    # frames: uint8 (T, H, W, 3)
    luma = frames.astype(np.float64) @ _LUMA / 255
    height, width = luma.shape[1:]
    window = np.hanning(height + 2)[1:-1, None] * np.hanning(width + 2)[None, 1:-1]
    centred = luma - (luma * window).sum(axis=(1, 2), keepdims=True) / window.sum()
    power = np.abs(np.fft.fft2(centred * window)) ** 2 / (window**2).sum()  # (T, H, W)
    radius = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.fftfreq(width)[None, :]).ravel()
    ring = np.minimum(
        (radius * 2 * _BINS).astype(int), _BINS
    )  # corners beyond half a cycle per pixel go into a ring of their own
    counts = np.bincount(ring, minlength=_BINS + 1)[:_BINS]
    sums = np.stack([np.bincount(ring, weights=p.ravel(), minlength=_BINS + 1)[:_BINS] for p in power])
    return np.log(sums / np.maximum(counts, 1) + _ROUNDING)


def spectrum_distance(spectrum: np.ndarray, mean: np.ndarray, spread: np.ndarray) -> float:
    """Root mean square over the rings of (spectrum - mean) / spread, each (16,): about 1 for a clip of the clean set."""
    return float(np.sqrt((((spectrum - mean) / spread) ** 2).mean()))


def latent_moments(latents: np.ndarray) -> np.ndarray:
    """Mean (C,) and mean outer product (C, C) of the cells of latents (C, ...), flattened to (C + C^2,).

    Moments of several clips of one size may be averaged.
    """
    cells = latents.reshape(len(latents), -1).astype(np.float64)
    return np.concatenate([cells.mean(axis=1), (cells @ cells.T / cells.shape[1]).ravel()])


def frechet_distance(moments: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Squared Frechet distance (...) between Gaussians with the moments (..., C + C^2) and those with ``reference`` (C + C^2,).

    Channels count in standard deviations of the reference.
    """
    channels = int(np.sqrt(reference.size + 0.25))  # C + C^2 numbers
    (mean, covariance), (middle, spread) = (_gaussian(m, channels) for m in (moments, reference))
    scale = np.sqrt(np.maximum(np.diagonal(spread), 1e-12))
    mean, middle = mean / scale, middle / scale
    covariance, spread = covariance / np.outer(scale, scale), spread / np.outer(scale, scale)
    values, vectors = np.linalg.eigh(spread)
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    cross = np.sqrt(np.maximum(np.linalg.eigvalsh(root @ covariance @ root), 0)).sum(axis=-1)
    traces = np.trace(covariance, axis1=-2, axis2=-1) + np.trace(spread)
    return ((mean - middle) ** 2).sum(axis=-1) + traces - 2 * cross


def _gaussian(moments: np.ndarray, channels: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean (..., C) and covariance (..., C, C)."""
    mean, second = moments[..., :channels], moments[..., channels:].reshape(*moments.shape[:-1], channels, channels)
    return mean, second - mean[..., :, None] * mean[..., None, :]


class CleanSet:
    """What is known of a folder of clean clips: mean and spread of their spectra, and the moments of their latents.

    Raises DataError for fewer than 8 clips, or clips of different sizes.
    """

    def __init__(self, folder: Path) -> None:
        import phys_pipeline
        from phys_pipeline.models.frame_autoencoder import FrameAutoencoder

        files = sorted(file for file in folder.iterdir() if file.suffix.lower() in VIDEO_SUFFIXES)
        if len(files) < _LEAST_CLIPS:
            raise DataError(f"{folder} has {len(files)} clips: use at least {_LEAST_CLIPS}")
        vae = Path(phys_pipeline.__file__).parent / "assets" / "tiny_hunyuan" / "vae"
        self._encoder: Any = FrameAutoencoder.from_pretrained(vae)
        clips = [read_video(file).frames for file in files]
        if len({clip.shape[1:] for clip in clips}) > 1:
            raise DataError(f"the clips of {folder} differ in size: make them alike")
        self.count, self.size = len(clips), clips[0].shape[1:3]
        spectra = np.stack([ring_spectrum(clip).mean(axis=0) for clip in clips])
        self.mean, self.spread = spectra.mean(axis=0), np.maximum(spectra.std(axis=0), _LEAST_SPREAD)  # (16,)
        self.moments = np.mean([self.moments_of(clip) for clip in clips], axis=0)  # (C + C^2,)

    def moments_of(self, frames: np.ndarray) -> np.ndarray:
        """:func:`latent_moments` of a clip's frames."""
        # frames: uint8 (T, H, W, 3)
        import torch

        height, width = (side // _STRIDE * _STRIDE for side in frames.shape[1:3])
        pixels = torch.from_numpy(frames[:, :height, :width].astype(np.float32) / 127.5 - 1).permute(3, 0, 1, 2)[None]
        with torch.no_grad():
            return latent_moments(self._encoder.encode(pixels).latent_dist.mode()[0].numpy())


class FrameQuality:
    """Distance of a clip's frames to those of the clean set; the clip's latent moments are in ``details["latent_moments"]``."""

    infos: ClassVar[tuple[MetricInfo, ...]] = (
        MetricInfo(
            "spectrum_distance", "Spatial spectrum distance", "clean sd", "down", ("quality",),
            "Distance of the log power of the clip's frames in 16 rings of spatial frequency from the clean set's mean, in "
            "standard deviations between clean clips; a clean clip has about 1.", 3, 0.0, min_frames=1,
        ),
    )  # fmt: skip

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._clean: CleanSet | None = None

    def available(self) -> Availability:
        folder = self._settings.options.get(OPTION)
        if folder is None:
            return Availability(False, f"it needs a folder of clean clips: --option {OPTION}=FOLDER")
        if not Path(str(folder)).is_dir():
            return Availability(False, f"--option {OPTION}={folder} is no folder")
        return Availability(True)

    def setup(self) -> None:
        """Measure the clean set."""
        self._clean = CleanSet(Path(str(self._settings.options[OPTION])))

    def close(self) -> None:
        self._clean = None

    def compute(self, clip: DecodedClip) -> Mapping[str, MetricResult]:
        clean = self._clean
        assert clean is not None, "setup() comes first"
        height, width = clip.frames.shape[1:3]
        if (height, width) != clean.size:
            reason = f"the clean clips have {clean.size[1]}x{clean.size[0]} pixels, this one {width}x{height}"
            return {"spectrum_distance": skipped(reason)}
        spectra = ring_spectrum(clip.frames)
        result = MetricResult(
            spectrum_distance(spectra.mean(axis=0), clean.mean, clean.spread),
            per_frame=[spectrum_distance(frame, clean.mean, clean.spread) for frame in spectra],
            details={"latent_moments": np.round(clean.moments_of(clip.frames), 5).tolist()},
            backend=f"{clean.count} clean clips",
        )
        return {"spectrum_distance": result}
