"""The spectral motion loss: blocks -> spectra -> three slices -> one number (paper, "Adaptive Weighting")."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from .coherence import coherence_loss
from .config import SpectralConfig
from .lattice import apodisation, cut, hann, kept_bins, spatial_spectrum, time_spectrum
from .pace import pace_loss
from .rotation import PolarGeometry, rotation_loss, soft_ring_energy, window_power
from .scaling import scaling_loss
from .translation import correlation_velocity, translation_loss


@dataclass(frozen=True)
class MotionLossOutput:
    """Result of :class:`SpectralMotionLoss`.

    ``loss``, ``translation``, ``rotation``, ``scaling`` are scalars with ``reduction="mean"``, (B,) with ``"none"``; ``weights``
    is (B, 3) in that order of slices; ``diagnostics`` maps a name to a (B, ...) tensor without gradient; ``windows`` maps a name
    to per-window values (B, windows, ...) without gradient, ``windows["start"]`` holds the first frames (windows,).
    """

    loss: Tensor
    translation: Tensor
    rotation: Tensor
    scaling: Tensor
    weights: Tensor
    diagnostics: dict[str, Tensor]
    windows: dict[str, Tensor]


class BlockResult(NamedTuple):
    """Per-block values: (N,) each, but ``losses`` and ``weights`` (N, 3) and ``velocity`` (N, 2)."""

    composite: Tensor
    losses: Tensor
    pace: Tensor
    coherence: Tensor
    weights: Tensor
    velocity: Tensor
    rotation: Tensor
    zoom: Tensor
    moving_energy: Tensor
    total_energy: Tensor
    ring_concentration: Tensor
    flow_proxy: Tensor
    trend_proxy: Tensor


class SpectralMotionLoss(nn.Module):
    """Spectral motion loss of a clip: the lower, the more of the motion a SIM(2) path explains; 0 is a still clip.

    Args:
        config: decisions and presets; ``SpectralConfig.calibrated()`` when left out.

    Calling it with a video (B, C, T, H, W) of any real dtype returns :class:`MotionLossOutput`. Half precision is computed in
    float32 with autocast off, float64 stays float64. With ``reference`` (the clean clip, same shape) the composite is the excess
    form ``relu(L(video) - L(reference) - margin)``. NaN or infinite values raise ``ValueError`` (reduction "none": too).
    """

    def __init__(self, config: SpectralConfig | None = None) -> None:
        super().__init__()
        self.config = config if config is not None else SpectralConfig.calibrated()

    def forward(
        self, video: Tensor, reduction: Literal["mean", "none"] = "mean", reference: Tensor | None = None
    ) -> MotionLossOutput:
        # video: (B, C, T, H, W); reference: (B, C, T, H, W) or None
        if reduction not in ("mean", "none"):
            raise ValueError(f"reduction must be 'mean' or 'none', not {reduction!r}")
        if reference is not None and reference.shape != video.shape:
            raise ValueError(f"reference has shape {tuple(reference.shape)}, the video {tuple(video.shape)}: they must agree")
        result = self._evaluate(video)
        loss = result.loss
        if reference is not None:
            with torch.no_grad():
                anchor = self._evaluate(reference).loss
            loss = torch.relu(loss - anchor - self.config.margin)
        terms = (loss, result.translation, result.rotation, result.scaling)
        if reduction == "mean":
            terms = tuple(term.mean() for term in terms)  # type: ignore[assignment]
        return MotionLossOutput(*terms, result.weights, result.diagnostics, result.windows)

    def _evaluate(self, video: Tensor) -> MotionLossOutput:
        """Per-clip losses (B,): blocks weighted by their motion energy inside a window, windows averaged."""
        config = self.config
        if video.dim() != 5 or 0 in video.shape:
            raise ValueError(f"expected a video of shape (B, C, T, H, W) with no empty axis, got {tuple(video.shape)}")
        if not video.is_floating_point():
            raise ValueError(f"expected a floating-point video, got {video.dtype}: divide 8-bit pixels by 255")
        with torch.autocast(device_type=video.device.type, enabled=False):
            video = video if video.dtype == torch.float64 else video.float()
            if not bool(torch.isfinite(video).all()):
                raise ValueError("the video has NaN or infinite values: score only finite pixels or latents")
            if config.remove_mean:
                video = _standardise(video)
            side = min(video.shape[3], video.shape[4])
            patches = config.patches if side >= config.minimum_patch_side else 1
            blocks, starts = cut(video, config.window, config.stride, patches)
            batch, windows, per_window = blocks.shape[:3]
            result = block_losses(blocks.flatten(0, 2), config)
            shape = (batch, windows, per_window)
            energy = result.moving_energy.detach().view(shape)
            total = energy.sum(dim=2, keepdim=True)
            share = torch.where(total > 0, energy / torch.where(total > 0, total, 1.0), 1.0 / per_window)

            def by_window(values: Tensor) -> Tensor:
                """Motion-energy weighted mean over the patches of a window: (N, ...) -> (B, windows, ...)."""
                values = values.view(*shape, *values.shape[1:])
                return (values * share.view(*shape, *[1] * (values.dim() - 3))).sum(dim=2)

            composite, losses = by_window(result.composite), by_window(result.losses)
            with torch.no_grad():
                still_and_moving = result.total_energy.view(shape).sum(dim=2)
                dynamic_degree = energy.sum(dim=2) / torch.where(still_and_moving > 0, still_and_moving, 1.0)
                per_window_values = {
                    "composite": composite.detach(),
                    "losses": losses.detach(),
                    "pace": by_window(result.pace),
                    "coherence": by_window(result.coherence),
                    "weights": by_window(result.weights),
                    "velocity": by_window(result.velocity),
                    "rotation": by_window(result.rotation),
                    "zoom": by_window(result.zoom),
                    "motion_energy": energy.sum(dim=2),
                    "dynamic_degree": dynamic_degree,
                    "ring_concentration": by_window(result.ring_concentration),
                    "flow_proxy": by_window(result.flow_proxy),
                    "trend_proxy": by_window(result.trend_proxy),
                }
                diagnostics = {name: value.mean(dim=1) for name, value in per_window_values.items() if name != "losses"}
                diagnostics["is_static"] = per_window_values["motion_energy"].sum(dim=1) == 0
                weights = diagnostics.pop("weights")
        per_window_values["start"] = torch.tensor(starts, device=video.device)
        translation, rotation, scaling = losses.mean(dim=1).unbind(dim=1)
        return MotionLossOutput(composite.mean(dim=1), translation, rotation, scaling, weights, diagnostics, per_window_values)


def _standardise(video: Tensor) -> Tensor:
    """Shift and scale each clip, without gradient, to zero mean and unit peak: losses don't depend on brightness or contrast.

    Rounding noise of a constant clip is not blown up: the scale is at least 1e-4 of the largest value.
    """
    # video: (B, C, T, H, W)
    with torch.no_grad():
        mean = video.mean(dim=(2, 3, 4), keepdim=True)
        peak = (video - mean).abs().amax(dim=(1, 2, 3, 4), keepdim=True)
        largest = video.abs().amax(dim=(1, 2, 3, 4), keepdim=True)
        scale = torch.maximum(peak, 1e-4 * largest)
        scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    return (video - mean) / scale


def block_losses(blocks: Tensor, config: SpectralConfig) -> BlockResult:
    """Losses of independent space-time blocks.

    Args:
        blocks: (N, C, T, H, W), standardised when the temporal mean is removed, pixels in [0, 1] otherwise.
    """
    # blocks: (N, C, T, H, W)
    count, _, frames, height, width = blocks.shape
    device, real = blocks.device, blocks.dtype
    time_weight = hann(frames, device, real)
    time_weight = (time_weight / time_weight.sum()).view(1, 1, -1, 1, 1)
    mean = (blocks * time_weight).sum(dim=2, keepdim=True)
    fade = apodisation(height, width, device, real) if config.apodise else torch.ones(height, width, device=device, dtype=real)
    moving = (blocks - mean if config.remove_mean else blocks - 0.5) * fade
    contrast = mean - (mean * fade).sum(dim=(3, 4), keepdim=True) / fade.sum()
    still = contrast * fade  # the still part without its mean brightness
    with torch.no_grad():
        moving_energy = (((blocks - mean) * fade).square() * time_weight).sum(dim=(1, 2, 3, 4))
        total_energy = moving_energy + still.square().sum(dim=(1, 2, 3, 4))
        # rounding of a still clip is not motion: amplitudes under 1e-5 of the block's contrast or 1e-6 of the clip's
        is_still = moving_energy <= torch.clamp(1e-10 * total_energy, min=1e-12 * blocks[0, :, 0].numel())
        moving_energy = torch.where(is_still, torch.zeros_like(moving_energy), moving_energy)

    one_sided = config.truncation == "one_sided"
    rows, columns = (tuple(kept_bins(side, config.keep)) for side in (height, width))
    geometry = PolarGeometry(height, width, rows[-1], columns[-1])
    spectrum = spatial_spectrum(moving, rows, columns)  # (N, C, T, Ky, Kx)
    still_spectrum = spatial_spectrum(still, rows, columns).detach()  # (N, C, 1, Ky, Kx)

    if one_sided:
        plane_rows, plane_columns = (tuple(kept_bins(side, config.keep, one_sided=True)) for side in (height, width))
        plane_spectrum = spatial_spectrum(moving, plane_rows, plane_columns)
    else:
        plane_rows, plane_columns, plane_spectrum = rows, columns, spectrum
    times = tuple(kept_bins(frames, config.keep_time, one_sided=one_sided, exclude_nyquist=not one_sided))
    omega_t = 2 * math.pi / frames * torch.tensor(times, device=device, dtype=real)
    omega_y = 2 * math.pi / height * torch.tensor(plane_rows, device=device, dtype=real)
    omega_x = 2 * math.pi / width * torch.tensor(plane_columns, device=device, dtype=real)
    whitening = (omega_y[:, None] ** 2 + omega_x[None, :] ** 2) ** config.whiten  # (Ky, Kx)
    energy = time_spectrum(plane_spectrum, times, dim=2).abs().square().sum(dim=1) * whitening  # (N, Kt, Ky, Kx)
    still_energy = torch.zeros(count, device=device, dtype=real)
    if config.energy_floor and not one_sided:
        still_energy = (still_spectrum.abs().square().sum(dim=(1, 2)) * whitening).sum(dim=(1, 2))
    floor = config.energy_floor * window_power(frames, device, real) * still_energy
    displacement = None
    if config.wrap and frames > 1:
        displacement = correlation_velocity(plane_spectrum.detach(), whitening, (height, width), (omega_y, omega_x))
    translation = translation_loss(energy, (omega_t, omega_y, omega_x), frames, floor, config, displacement)

    ring_energy = soft_ring_energy(spectrum, geometry, config)  # (N, T, R)
    rotation = rotation_loss(spectrum, still_spectrum, ring_energy, geometry, config)
    scaling = scaling_loss(spectrum, still_spectrum, ring_energy, geometry, config)
    losses = torch.stack([translation.loss, rotation.loss, scaling.loss], dim=1)
    if config.remove_mean or frames == 1:
        losses = torch.where(is_still[:, None], torch.zeros_like(losses), losses)  # what does not move is not implausible
    composite, weights = combine(losses, config)
    pace, coherence = losses.new_zeros(count), losses.new_zeros(count)
    frame_floor = config.energy_floor * still_energy
    if config.pace_weight:
        pace = torch.where(is_still, pace, pace_loss(plane_spectrum, whitening, frame_floor, config))
        composite = composite + config.pace_weight * pace
    if config.coherence_weight:
        coherence = torch.where(is_still, coherence, coherence_loss(plane_spectrum, whitening, frame_floor, config))
        composite = composite + config.coherence_weight * coherence
    return BlockResult(
        composite=composite,
        losses=losses,
        pace=pace.detach(),
        coherence=coherence.detach(),
        weights=weights.detach(),
        velocity=translation.velocity.detach(),
        rotation=rotation.rotation.detach(),
        zoom=scaling.zoom.detach(),
        moving_energy=moving_energy,
        total_energy=total_energy,
        ring_concentration=rotation.ring_concentration.detach(),
        flow_proxy=scaling.flow_proxy.detach(),
        trend_proxy=scaling.trend_proxy.detach(),
    )


def combine(losses: Tensor, config: SpectralConfig) -> tuple[Tensor, Tensor]:
    """Composite (N,) and weights w = softmax(-L / tau) (N, 3) of the three losses (N, 3).

    softmin: the free energy -tau log mean exp(-L / tau), whose gradient is exactly w (maximum-entropy form).
    coupled: sum w L with gradients through w, as printed: negative for L_i > L + tau. detached: sum w L with w constant.
    """
    # losses: (N, 3)
    weights = torch.softmax(-losses / config.temperature, dim=1)
    if config.weighting == "softmin":
        composite = -config.temperature * (torch.logsumexp(-losses / config.temperature, dim=1) - math.log(losses.shape[1]))
    else:
        composite = ((weights.detach() if config.weighting == "detached" else weights) * losses).sum(dim=1)
    return composite, weights
