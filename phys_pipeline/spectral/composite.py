"""The spectral motion loss: blocks -> spectra -> three slices -> one number (paper, "Adaptive Weighting")."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from .coherence import coherence_loss
from .config import SLICES, SpectralConfig
from .energies import BlockEnergies, Lattice, block_energies, config_at, make_lattice, spatial_limits
from .lattice import patch_starts, window_power, window_starts
from .pace import pace_loss
from .rotation import rotation_loss
from .scaling import scaling_loss
from .transforms import patch_spectra, pixel_energies
from .translation import correlation_velocity, translation_loss

_NOT_TRACED = "SpectralMotionLoss runs outside the compiled graph: leave it out of fullgraph=True regions"


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
    """Per-block values: (B, P, windows) each, but ``losses`` and ``weights`` have 3 and ``velocity`` 2 more at the end.

    Energies are those of the clip times ``scale`` (B,).
    """

    composite: Tensor
    losses: Tensor
    pace: Tensor
    coherence: Tensor
    weights: Tensor
    velocity: Tensor
    rotation: Tensor
    zoom: Tensor
    ring_concentration: Tensor
    flow_proxy: Tensor
    trend_proxy: Tensor
    moving_energy: Tensor
    total_energy: Tensor
    scale: Tensor


class SpectralMotionLoss(nn.Module):
    """Spectral motion loss of a clip: the lower, the more of the motion a SIM(2) path explains; 0 is a still clip.

    Args:
        config: decisions and presets; ``SpectralConfig.calibrated()`` when left out.

    Calling it with a video (B, C, T, H, W) of any real dtype returns :class:`MotionLossOutput`. Half precision is computed in
    float32 with autocast off, float64 stays float64. With ``reference`` (the clean clip, same shape; or its losses (B,), where
    they are known) the composite is the excess form ``relu(L(video) - L(reference) - margin)``. NaN or infinite values raise
    ``ValueError`` (reduction "none": too).
    """

    def __init__(self, config: SpectralConfig | None = None) -> None:
        super().__init__()
        self.config = config if config is not None else SpectralConfig.calibrated()

    def forward(
        self, video: Tensor, reduction: Literal["mean", "none"] = "mean", reference: Tensor | None = None
    ) -> MotionLossOutput:
        # video: (B, C, T, H, W); reference: (B, C, T, H, W), (B,) or None
        if torch.compiler.is_compiling():  # nothing to fuse in a dozen products with cached matrices: run as it is
            return torch.compiler.disable(self._score, reason=_NOT_TRACED)(video, reduction, reference)  # type: ignore[no-untyped-call]
        _refuse_function_transforms()
        return self._score(video, reduction, reference)

    def _score(self, video: Tensor, reduction: str, reference: Tensor | None) -> MotionLossOutput:
        if reduction not in ("mean", "none"):
            raise ValueError(f"reduction must be 'mean' or 'none', not {reduction!r}")
        if reference is not None and reference.shape not in (video.shape, video.shape[:1]):
            raise ValueError(f"reference has shape {tuple(reference.shape)}, the video {tuple(video.shape)}: they must agree")
        anchor = reference
        if reference is not None and reference.dim() > 1:
            with torch.no_grad():  # before the video's graph is there: a quarter less memory at the peak
                anchor = self._evaluate(reference).loss
        result = self._evaluate(video)
        loss = result.loss if anchor is None else torch.relu(result.loss - anchor.detach() - self.config.margin)
        terms = (loss, result.translation, result.rotation, result.scaling)
        if reduction == "mean":
            terms = tuple(term.mean() for term in terms)  # type: ignore[assignment]
        return MotionLossOutput(*terms, result.weights, result.diagnostics, result.windows)

    def losses(self, video: Tensor, reference: Tensor | None = None) -> Tensor:
        """Loss (B,) alone: what ``forward`` with reduction "none" gives, without the work for diagnostics. For training."""
        # video: (B, C, T, H, W); reference: (B, C, T, H, W), (B,) or None
        with torch.autocast(device_type=video.device.type, enabled=False):
            if reference is not None and reference.dim() > 1:
                with torch.no_grad():
                    reference = self.losses(reference)
            blocks = _score_blocks(_checked(video), self.config, report=False)
            share = _shares(blocks.moving)
            loss = (blocks.composite.view_as(share) * share).sum(dim=1).mean(dim=1)
        return loss if reference is None else torch.relu(loss - reference.detach() - self.config.margin)

    def _evaluate(self, video: Tensor) -> MotionLossOutput:
        """Per-clip losses (B,): patches weighted by their motion energy inside a window, windows averaged."""
        with torch.autocast(device_type=video.device.type, enabled=False):
            video = _checked(video)
            result, starts = block_losses(video, self.config)
            energy = result.moving_energy
            share = _shares(energy)

            def by_window(values: Tensor) -> Tensor:
                """Motion-energy weighted mean over the patches of a window: (B, P, windows, ...) -> (B, windows, ...)."""
                return (values * share.view(*share.shape, *[1] * (values.dim() - 3))).sum(dim=1)

            composite, losses = by_window(result.composite), by_window(result.losses)
            with torch.no_grad():
                still_and_moving = result.total_energy.sum(dim=1)
                dynamic_degree = energy.sum(dim=1) / torch.where(still_and_moving > 0, still_and_moving, 1.0)
                per_window_values = {
                    "composite": composite.detach(),
                    "losses": losses.detach(),
                    "pace": by_window(result.pace),
                    "coherence": by_window(result.coherence),
                    "weights": by_window(result.weights),
                    "velocity": by_window(result.velocity),
                    "rotation": by_window(result.rotation),
                    "zoom": by_window(result.zoom),
                    "motion_energy": energy.sum(dim=1) / result.scale[:, None].square(),
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


def _checked(video: Tensor) -> Tensor:
    """A video (B, C, T, H, W) in float32 or float64; ValueError for anything else."""
    if video.dim() != 5 or 0 in video.shape:
        raise ValueError(f"expected a video of shape (B, C, T, H, W) with no empty axis, got {tuple(video.shape)}")
    if not video.is_floating_point():
        raise ValueError(f"expected a floating-point video, got {video.dtype}: divide 8-bit pixels by 255")
    return video if video.dtype == torch.float64 else video.float()


def _shares(energy: Tensor) -> Tensor:
    """Each patch's share of its window's motion energy (B, P, windows); equal shares where nothing moves."""
    total = energy.sum(dim=1, keepdim=True)
    return torch.where(total > 0, energy / torch.where(total > 0, total, 1.0), 1.0 / energy.shape[1])


def _refuse_function_transforms() -> None:
    """Raise under ``torch.func`` (vmap, grad, jvp): hand-written gradients and checks of values don't go through it."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise RuntimeError(
            "SpectralMotionLoss does not run under torch.func transforms (vmap, grad, jvp). It takes a batch: pass "
            "(B, C, T, H, W) with reduction='none' for one loss per clip, and use torch.autograd for gradients"
        )


@torch.no_grad()
def _unit_scale(video: Tensor, standardise: bool) -> Tensor:
    """Power of two (B,) that brings each clip's peak contrast to about one; ones unless ``standardise``.

    Losses don't depend on contrast, and scaling by a power of two rounds nothing. Rounding noise of a constant clip is not blown
    up: the contrast counts as at least 1e-4 of the largest value. Raises ``ValueError`` for NaN or infinite values.
    """
    # video: (B, C, T, H, W)
    low, high = (bound(video, dim=(1, 2, 3, 4)).tolist() for bound in (torch.amin, torch.amax))
    if not all(map(math.isfinite, (top - bottom for bottom, top in zip(low, high, strict=True)))):
        raise ValueError("the video has NaN or infinite values: score only finite pixels or latents")
    scales = [_unit(bottom, top) if standardise else 1.0 for bottom, top in zip(low, high, strict=True)]
    return torch.tensor(scales, dtype=video.dtype, device=video.device)


def _unit(low: float, high: float) -> float:
    """The power of two that brings the contrast of values from ``low`` to ``high`` to [1, 2); 1 where all are zero."""
    contrast = max((high - low) / 2, 1e-4 * max(abs(low), abs(high)))
    return 2.0 ** (1 - math.frexp(contrast)[1]) if contrast > 0 else 1.0


class _Blocks(NamedTuple):
    """``composite`` (N,), ``losses`` (N, 3) and the other fields of :class:`BlockResult` of N blocks; ``moving`` and ``total``
    energies (B, P, windows), ``scale`` (B,), and the first frames of the windows."""

    composite: Tensor
    losses: Tensor
    others: tuple[Tensor, ...]
    moving: Tensor
    total: Tensor
    scale: Tensor
    starts: list[int]


def block_losses(video: Tensor, config: SpectralConfig) -> tuple[BlockResult, list[int]]:
    """Losses of all blocks of a clip (B, C, T, H, W): (B, P, windows, ...) each, and the first frames of the windows."""
    blocks = _score_blocks(video, config)
    values = (blocks.composite, blocks.losses, *(value.detach() for value in blocks.others))
    energies = (blocks.moving, blocks.total, blocks.scale)
    return BlockResult._make((*(value.unflatten(0, blocks.moving.shape) for value in values), *energies)), blocks.starts


def _score_blocks(video: Tensor, config: SpectralConfig, *, report: bool = True) -> _Blocks:
    """Without ``report`` the velocity is rough, and ring concentration and proxies are 0 where the loss doesn't use them."""
    # video: (B, C, T, H, W)
    _, _, frames, height, width = video.shape
    config = config_at(max(height, width), config)
    starts, length = window_starts(frames, config.window, config.stride), min(config.window, frames)
    patches = config.patches if min(height, width) >= config.minimum_patch_side else 1
    size = (patch_starts(height, patches)[0], patch_starts(width, patches)[0])
    scale = _unit_scale(video, config.remove_mean)
    moving, total = pixel_energies(video.detach(), tuple(starts), length, patches, config.apodise, scale)
    # rounding of a still clip is not motion: amplitudes under 1e-5 of the block's contrast or 1e-6 of the clip's
    is_still = moving <= torch.clamp(1e-10 * total, min=1e-12 * video.shape[1] * size[0] * size[1])
    moving = torch.where(is_still, torch.zeros_like(moving), moving)
    lattice = make_lattice(*size, length, config, video.device, video.dtype)
    spectra = patch_spectra(video, patches, spatial_limits(*size, config), config.apodise)
    spectra = spectra * scale.view(-1, 1, 1, 1, 1, 1)
    energies = block_energies(spectra, tuple(starts), length, lattice, config, report=report)
    composite, losses, others = _losses(energies, is_still.flatten(), length, lattice, config, report)
    return _Blocks(composite, losses, others, moving, total, scale, starts)


def _losses(
    energies: BlockEnergies, is_still: Tensor, frames: int, lattice: Lattice, config: SpectralConfig, report: bool
) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Composite, losses and the other fields of :class:`BlockResult` but its energies, for N blocks."""
    geometry = lattice.geometry
    measure = lattice.measure
    still = energies.still if lattice.symmetric else torch.zeros_like(energies.still)
    floor = config.energy_floor * window_power(frames, still.device, still.dtype) * still
    displacement = None
    if config.wrap and frames > 1:
        whole = energies.cross.detach().sum(dim=1) * measure
        displacement = correlation_velocity(whole, geometry[:2], (lattice.omega_y, lattice.omega_x))
    translation = translation_loss(energies.plane, lattice.design, frames, floor, config, displacement, report=report)
    rotation = rotation_loss(energies.turn, energies.rings, energies.turn_floor, config)
    scaling = scaling_loss(energies.growth, energies.rings, energies.growth_floor, geometry, config)
    losses = torch.stack([translation.loss, rotation.loss, scaling.loss], dim=1)
    if config.remove_mean or frames == 1:
        losses = losses.masked_fill(is_still[:, None], 0)  # what does not move is not implausible
    composite, weights = combine(losses, config)
    pace = coherence = torch.zeros_like(composite)
    frame_floor = config.energy_floor * still
    if config.pace_weight:
        inner = (energies.cross.real * measure).sum(dim=(2, 3))
        pace = pace_loss(energies.frame, inner, frame_floor, config).masked_fill(is_still, 0)
        composite = composite + config.pace_weight * pace
    if config.coherence_weight:
        coherence = coherence_loss(energies.cross, measure, frame_floor, config).masked_fill(is_still, 0)
        composite = composite + config.coherence_weight * coherence
    motion = (translation.velocity, rotation.rotation, scaling.zoom)
    proxies = (rotation.ring_concentration, scaling.flow_proxy, scaling.trend_proxy)
    return composite, losses, (pace, coherence, weights, *motion, *proxies)


def combine(losses: Tensor, config: SpectralConfig) -> tuple[Tensor, Tensor]:
    """Composite (N,) and weights w = softmax(-L / tau) (N, 3) of the three losses (N, 3).

    softmin: the free energy -tau log mean exp(-L / tau), whose gradient is exactly w (maximum-entropy form).
    coupled: sum w L with gradients through w, as printed: negative for L_i > L + tau. detached: sum w L with w constant.
    Slices that ``config.slices`` leaves out have weight 0; without any the composite is 0.
    """
    # losses: (N, 3)
    if len(config.slices) < len(SLICES):
        return _combine_some(losses, config)
    logarithms = torch.log_softmax(losses * (-1 / config.temperature), dim=1)
    weights = logarithms.exp()
    if config.weighting == "softmin":  # the free energy is L_i + tau log (n w_i), whichever slice i
        composite = losses[:, 0] + config.temperature * (logarithms[:, 0] + math.log(losses.shape[1]))
    else:
        composite = ((weights.detach() if config.weighting == "detached" else weights) * losses).sum(dim=1)
    return composite, weights


def _combine_some(losses: Tensor, config: SpectralConfig) -> tuple[Tensor, Tensor]:  # (N, 3)
    if not config.slices:
        return losses.new_zeros(len(losses)), torch.zeros_like(losses)
    kept = [SLICES.index(name) for name in config.slices]
    composite, some = combine(losses[:, kept], replace(config, slices=SLICES))
    weights = torch.zeros_like(losses)
    weights[:, kept] = some
    return composite, weights
