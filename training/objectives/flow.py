"""`flow`: the flow-consistency baseline of the paper (arXiv:2506.02244v2) on the decoded x0-hat.

    mean over visible pixels of rho(x_(t+1) - x_t(p + F_(t+1 -> t))), the same backwards, plus lambda times edge-aware smoothness

The paper leaves the details open; these are ours. Warps are backward (a frame samples the other where the flow from it points),
visibility is the forward-backward check of Sundaram et al. 2010, rho the Charbonnier penalty sqrt(d^2 + 1e-6) - 1e-3, smoothness
that of ARFlow (Liu et al. 2020, arXiv:2003.13045). Gradients reach the pixels, never the flow, so the smoothness term is in the
value and has no gradient. A frozen or blurred clip has next to no error: watch the motion energy.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from phys_pipeline.errors import ConfigError, ModelError

Estimator = Callable[
    [Tensor, Tensor], Tensor
]  # frames (N, 3, H, W) twice, [0, 1] -> flow (N, 2, H, W) in pixels, x right, y down

_EPSILON = 1e-3
_LEAST_VISIBLE = 0.2  # of a pair's pixels; a pair with fewer is left out
_EDGES = 10.0  # ARFlow's alpha
_RAFT_STEP, _RAFT_LEAST, _RAFT_ITERATIONS = 8, 128, 12


class FlowConsistency:
    """Losses (K,) of decoded videos (K, 3, T, H, W); both directions averaged, then pairs of neighbouring frames.

    Args:
        estimator: see :func:`flow_estimator`.
        smoothness: lambda; flow counts in units of the shorter side.
    """

    needs_reference = False

    def __init__(self, estimator: Estimator, smoothness: float = 0.1) -> None:
        self.estimator, self.smoothness = estimator, smoothness

    def __call__(self, video: Tensor, reference: Tensor | None = None) -> Tensor:
        # video: (K, 3, T, H, W); reference: not used
        pairs = video.shape[2] - 1
        first = video[:, :, :-1].transpose(1, 2).flatten(0, 1)  # (N, 3, H, W), N = K pairs
        second = video[:, :, 1:].transpose(1, 2).flatten(0, 1)
        with torch.no_grad():
            pixels = (first.detach().clamp(0, 1), second.detach().clamp(0, 1))
            there, back = self.estimator(*pixels), self.estimator(pixels[1], pixels[0])
            masks = visible(there, back), visible(back, there)
            smooth = smoothness(there, pixels[0]) + smoothness(back, pixels[1])
        errors, counted = first.new_zeros(len(first)), torch.zeros_like(masks[0][:, 0, 0, 0])
        for target, source, flow, mask in ((second, first, back, masks[1]), (first, second, there, masks[0])):
            share = mask.mean(dim=(1, 2, 3))
            use = (share >= _LEAST_VISIBLE).float()
            penalty = (((target - warp(source, flow)).square() + _EPSILON**2).sqrt() - _EPSILON) * mask
            errors = errors + use * penalty.mean(dim=(1, 2, 3)) / share.clamp_min(_LEAST_VISIBLE)
            counted = counted + use
        values = (errors + self.smoothness * smooth * (counted > 0)) / counted.clamp_min(1.0)
        weights = (counted > 0).float().unflatten(0, (-1, pairs))
        return (values.unflatten(0, (-1, pairs)) * weights).sum(dim=1) / weights.sum(dim=1).clamp_min(1.0)


def warp(source: Tensor, flow: Tensor) -> Tensor:
    """`source(p + flow(p))`, bilinear, borders repeated. Differentiable in `source`."""
    # source: (N, C, H, W); flow: (N, 2, H, W) pixels
    x, y = _targets(flow)
    height, width = flow.shape[2:]
    grid = torch.stack([2 * x / max(width - 1, 1) - 1, 2 * y / max(height - 1, 1) - 1], dim=-1)
    return F.grid_sample(source, grid, mode="bilinear", padding_mode="border", align_corners=True)


def visible(flow: Tensor, back: Tensor) -> Tensor:
    """1 where a pixel stays in the frame and |F + B(p + F)|^2 <= 0.01 (|F|^2 + |B(p + F)|^2) + 0.5, else 0; (N, 1, H, W)."""
    # flow, back: (N, 2, H, W) pixels
    returned = warp(back, flow)
    x, y = _targets(flow)
    inside = (x >= 0) & (x <= flow.shape[3] - 1) & (y >= 0) & (y <= flow.shape[2] - 1)
    lengths = flow.square().sum(dim=1) + returned.square().sum(dim=1)
    agrees = (flow + returned).square().sum(dim=1) <= 0.01 * lengths + 0.5
    return (inside & agrees).float()[:, None]


def smoothness(flow: Tensor, frame: Tensor) -> Tensor:
    """Mean of |grad F| exp(-10 |grad I|) per pair (N,), F in units of the shorter side."""
    # flow: (N, 2, H, W); frame: (N, 3, H, W)
    scaled = flow / min(flow.shape[2:])
    total = flow.new_zeros(len(flow))
    for axis in (2, 3):
        edges = torch.exp(-_EDGES * frame.diff(dim=axis).abs().mean(dim=1, keepdim=True))
        total = total + (scaled.diff(dim=axis).abs() * edges).mean(dim=(1, 2, 3))
    return total


def flow_estimator(name: str, device: torch.device) -> tuple[str, Estimator]:
    """The estimator `raft` (torchvision's large RAFT, 12 iterations, its weights are downloaded once) or `dis` (OpenCV, on the
    CPU), and its name; `auto` is raft where torchvision is installed, else dis.

    Raises ConfigError when the package isn't there, ModelError when RAFT's weights can't be had.
    """
    if name == "auto":
        name = "raft" if importlib.util.find_spec("torchvision") else "dis"
    package, install = {"raft": ("torchvision", "pip install torchvision"), "dis": ("cv2", 'pip install "phys-pipeline[flow]"')}[
        name
    ]
    if importlib.util.find_spec(package) is None:
        raise ConfigError(f"the flow objective with flow_estimator={name} needs {package}: {install}")
    return name, _raft(device) if name == "raft" else _dis()


def _targets(flow: Tensor) -> tuple[Tensor, Tensor]:  # (N, 2, H, W) -> (N, H, W) twice
    height, width = flow.shape[2:]
    columns = torch.arange(width, device=flow.device, dtype=flow.dtype)
    rows = torch.arange(height, device=flow.device, dtype=flow.dtype)
    return flow[:, 0] + columns, flow[:, 1] + rows[:, None]


def _dis() -> Estimator:
    import numpy as np

    from phys_pipeline.evaluation.flow import DisFlow

    flow = DisFlow()

    def pictures(frames: Tensor) -> np.ndarray:
        return (frames * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()

    def estimate(first: Tensor, second: Tensor) -> Tensor:  # (N, 3, H, W) twice
        flows = [flow(a, b) for a, b in zip(pictures(first), pictures(second), strict=True)]
        return torch.from_numpy(np.stack(flows)).permute(0, 3, 1, 2).to(first)

    return estimate


def _raft(device: torch.device) -> Estimator:
    from torchvision.models import optical_flow

    try:
        model = optical_flow.raft_large(weights=optical_flow.Raft_Large_Weights.DEFAULT).to(device).eval().requires_grad_(False)
    except OSError as error:
        raise ModelError(f"RAFT's weights can't be downloaded ({error}); set flow_estimator=dis") from None

    def estimate(first: Tensor, second: Tensor) -> Tensor:  # (N, 3, H, W) twice
        height, width = first.shape[2:]
        size = [max(_RAFT_LEAST, -(-side // _RAFT_STEP) * _RAFT_STEP) for side in (height, width)]
        inputs = [F.interpolate(frame, size, mode="bilinear", align_corners=False) * 2 - 1 for frame in (first, second)]
        flow = model(*inputs, num_flow_updates=_RAFT_ITERATIONS)[-1]
        flow = F.interpolate(flow, (height, width), mode="bilinear", align_corners=False)
        return flow * flow.new_tensor([width / size[1], height / size[0]]).view(1, 2, 1, 1)

    return estimate
