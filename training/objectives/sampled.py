"""`sampled`: the spectral motion loss of videos that the model makes itself.

x0-hat of a noised training clip follows that clip, whatever motion the sampler would make from noise alone, so a loss on it
hardly changes what is generated (docs/results/experiment_rounds.md). Here the loss judges a video made from noise and a sample's
caption, as direct reward fine-tuning does (DRaFT, Clark et al. 2024, arXiv:2309.17400; AlignProp, Prabhudesai et al. 2023,
arXiv:2310.03739). A reward is soon paid in blur, fading or stillness; so the video is held to the detail and the amount of
motion of the base model's video from the same noise.

Gradients don't run back through the sampler's steps, where they grow without bound and every step's activations would be kept.
The loss's gradient at the video is handed to the clean prediction x0-hat at a few noise levels of the video's own path, with the
inputs there detached (as in DRTune, Wu et al. 2024, arXiv:2405.00760, which weighs a level by its share of the sampler's sum
instead: with a shift of 10 and ten steps half of that is the last step, when motion is long settled).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from phys_pipeline.noise_path import NoisePath, shift_sigma
from phys_pipeline.spectral import SpectralMotionLoss
from training.objectives.term import MotionTerm, TermResult, motion_energy

Predict = Callable[[Tensor, Tensor], Tensor]  # x_t (B, C, T, H, W), sigma (B,) -> prediction (B, C, T, H, W)
_EDGES = (0.0, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1.0)  # cycles per pixel between the five bands of spatial frequency
_LEAST_SHARE = 0.003  # of a video's power: a band of the base video's that has less isn't held
_LEAST_MOTION = 1e-3  # motion energy (pixels in [0, 1]) under which a video is as good as still: less of it is no loss
_LARGEST = 4.0  # a squared deviation counts up to here
LARGEST_STEP = 12.0  # norm of a gradient times that of its latents: nearly still videos have a hundred times the usual


class Held:
    """L(video) + keep x deviation(video, base model's video), which stands where other losses have the clean clip."""

    one_number = False

    def __init__(self, loss: SpectralMotionLoss, keep: float, least_motion: float) -> None:
        self.loss, self.keep, self.least_motion = loss, keep, least_motion
        self.needs_reference = keep > 0

    def of_clean(self, reference: Tensor, sigma: Tensor) -> Tensor:  # (K, C, T, H, W) -> (K, C, T, H, W)
        return reference

    def __call__(self, video: Tensor, clean: Tensor | None) -> Tensor:  # (K, C, T, H, W), (K, C, T, H, W) -> (K,)
        value = self.loss.losses(video)
        return value if clean is None else value + self.keep * deviation(video, clean, least=self.least_motion)


class Sampled:
    """L(video) + keep x deviation(video, base model's video), of videos sampled from the batch's noise and captions.

    The sampler is deterministic: from sigma to the next one, x0-hat and the noise it leaves are mixed anew, which is Euler's step
    on a rectified flow and DDIM's on a variance-preserving path. No classifier-free guidance: one pass per step.

    Args:
        loss: of videos (1, C, T, H, W).
        path: the family's.
        steps: of the sampler, evenly spaced before the shift.
        levels: at how many of its noise levels, drawn for each sample, x0-hat gets the gradient. Each keeps the network's
            activations until the backward pass.
        shift: timestep shift of the sampler.
        keep: weight of what is held to the base model's video; 0 makes no base videos.
        decode: latents -> pixels in [0, 1], differentiable; None scores the latents themselves.
        drop_first: of latents, leave out the first frame, which covers one picture where the others cover several.
    """

    def __init__(
        self,
        loss: SpectralMotionLoss,
        path: NoisePath,
        *,
        steps: int,
        levels: int,
        shift: float,
        keep: float,
        decode: Callable[[Tensor], Tensor] | None = None,
        drop_first: bool = False,
    ) -> None:
        self.path, self.levels, self.keep = path, levels, keep
        self.sigmas = [*shift_sigma(torch.linspace(1, 0, steps + 1)[:-1], shift).tolist(), 0.0]
        held = Held(loss, keep, least_motion=0.0 if decode is None else _LEAST_MOTION)
        self.term = MotionTerm(held, 1.0, every_step=True, decode=decode, drop_first=drop_first)

    def __call__(self, predict: Predict, base: Predict, noise: Tensor, seeds: Sequence[int]) -> TermResult:
        """Loss over the batch's noise (B, C, T, H, W); videos that are not finite are left out and counted.

        `seeds` (B) decide each sample's levels. The value is the videos' loss; its gradient is described above.
        """
        noise = noise.float()
        with torch.no_grad():
            path = self.sample(predict, noise)
            reference = self.sample(base, noise)[-1] if self.keep else noise
        video = path[-1].detach().requires_grad_(torch.is_grad_enabled())  # (B, C, T, H, W)
        result = self.term(video, reference, noise.new_zeros(len(noise)))
        if not video.requires_grad:
            return result
        gradient = torch.zeros_like(video)
        if result.loss.requires_grad:
            (gradient,) = torch.autograd.grad(result.loss, video)
        norms = (gradient.flatten(1).norm(dim=1) * video.detach().flatten(1).norm(dim=1)).clamp_min(1e-12) * len(noise)  # (B,)
        gradient = gradient * (LARGEST_STEP / norms).nan_to_num(0.0).clamp(max=1.0).view(-1, 1, 1, 1, 1)
        total = result.loss.detach()
        for sigma, x in self._drawn(path, seeds):  # whatever was found: processes that share a model run it alike
            clean = self.path.clean(predict(x, sigma).float(), x, sigma)
            step = (clean.nan_to_num(0.0, 0.0, 0.0) * gradient).sum() / self.levels  # samples that were left out have no gradient
            total = total + (step - step.detach())
        return replace(result, loss=total)

    def sample(self, predict: Predict, x: Tensor) -> list[Tensor]:
        """Latents (B, C, T, H, W) before each step of the sampler, and the last step's, which are the video."""
        path = [x]
        for now, after in pairwise(self.sigmas):
            sigma = torch.full((len(x),), now, device=x.device)
            clean = self.path.clean(predict(x, sigma).float(), x, sigma)  # (B, C, T, H, W)
            if after == 0:
                return [*path, clean]
            none = torch.zeros_like(x)
            amount = self.path.corrupt(none, torch.ones_like(x), sigma)  # how much noise x holds
            left = (x - self.path.corrupt(clean, none, sigma)) / amount
            x = self.path.corrupt(clean, left, torch.full_like(sigma, after))
            path.append(x)
        raise AssertionError("the last noise level is 0")

    def _drawn(self, path: list[Tensor], seeds: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
        """Noise levels (B,) and latents (B, C, T, H, W) there; a sample's draws depend on its seed alone."""
        steps = len(self.sigmas) - 1
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        places = torch.stack(
            [torch.randperm(steps, generator=generator)[: self.levels] for generator in generators]
        )  # (B, levels)
        for column in places.T.tolist():
            sigma = torch.tensor([self.sigmas[place] for place in column], device=path[0].device)
            yield sigma, torch.stack([path[place][row] for row, place in enumerate(column)])


def deviation(video: Tensor, other: Tensor, *, least: float = _LEAST_MOTION) -> Tensor:
    """How far each frame's spatial power in bands of frequency, and the motion energy, are from another video's: (B,), 0 = alike.

    Squares of 1 - ratio, their mean over frames and five bands plus that of the motion energy; each counts up to 4. Frame by
    frame, since the spectral loss hardly sees the ends of its windows: what it may do there is seen here. Holding the energy of
    smoothed motion alone, so that flicker may go, was tried: more motion was lost, not less.
    """
    # video, other: (B, C, T, H, W)
    now, before = band_power(video), band_power(other)  # (B, T, 5)
    floor = _LEAST_SHARE * before.sum(dim=-1, keepdim=True) + 1e-12
    detail = (1 - (now + floor) / (before + floor)).square().clamp(max=_LARGEST).mean(dim=(1, 2))
    moves = (motion_energy(video) + least + 1e-12) / (motion_energy(other) + least + 1e-12)
    return detail + (1 - moves).square().clamp(max=_LARGEST)


def band_power(video: Tensor) -> Tensor:  # (B, C, T, H, W) -> (B, T, 5)
    """Spatial power of each frame in five bands of frequency, mean over channels; the mean of each frame is left out."""
    height, width = video.shape[-2:]
    power = torch.fft.rfft2(video - video.mean(dim=(-2, -1), keepdim=True)).abs().square().mean(dim=1)  # (B, T, H, W // 2 + 1)
    rows = torch.fft.fftfreq(height, device=video.device)[:, None]
    columns = torch.fft.rfftfreq(width, device=video.device)[None]
    radius = (rows.square() + columns.square()).sqrt()  # (H, W // 2 + 1)
    inside = [(radius > low) & (radius <= high) for low, high in pairwise(_EDGES)]
    return torch.stack([(power * band).sum(dim=(-2, -1)) for band in inside], dim=-1)
