"""Dense optical flow between two frames, and where a pixel is still seen. DIS (OpenCV) or RAFT (torchvision).

Flow is computed on pictures whose shorter side is at most ``WORKING_SIDE`` pixels (:func:`working_size`): a pair of a 1280x720
clip costs as much as one of 455x256, and numbers of clips of different size compare. Only the ``evalcrafter`` protocol also
looks at the clip's own size (:mod:`phys_pipeline.evaluation.metrics.warping`).
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from phys_pipeline.errors import ConfigError, ModelError, first_line
from phys_pipeline.evaluation.metric import Availability, Settings, Weights

WORKING_SIDE = 256  # pixels of the shorter side
_RAFT_STEP, _RAFT_LEAST, _RAFT_UPDATES = (
    8,
    128,
    20,
)  # sides are multiples of 8 and not under 128; updates as RAFT's own evaluation
_RAFT_WEIGHTS = "C_T_V2"
RAFT = "RAFT flow"  # what metrics call it for which DIS stands in
RAFT_WEIGHTS = Weights("torchvision's raft_large", _RAFT_WEIGHTS, 21_100_000, "BSD-3-Clause")
_ESTIMATORS = ("auto", "raft", "dis")
_OPENCV = ("opencv-python-headless", "opencv-python", "opencv-contrib-python-headless", "opencv-contrib-python")  # distributions
_MISSING = "missing"
_NO_OPENCV = 'optical flow needs OpenCV: pip install "phys-pipeline[flow]"'
_NO_TORCHVISION = "flow=raft needs torchvision: pip install torchvision (or use flow=dis)"


class FlowEstimator(Protocol):
    """``(first, second)``, uint8 (H, W, 3) -> float32 (H, W, 2): where each pixel of first went, in pixels, x right, y down."""

    name: str  # "dis" or "raft", with version: the backend of rows

    def __call__(self, first: np.ndarray, second: np.ndarray) -> np.ndarray: ...


def working_size(height: int, width: int) -> tuple[int, int]:
    """Size (height, width) at which pairs of frames are compared: the shorter side at most 256 pixels, never enlarged."""
    factor = min(1.0, WORKING_SIDE / min(height, width))
    return max(1, round(height * factor)), max(1, round(width * factor))


def opencv() -> Any:
    """The module cv2, with one thread so that results repeat. Raises ConfigError where it is not installed."""
    try:
        import cv2
    except ImportError:
        raise ConfigError(_NO_OPENCV) from None
    cv2.setNumThreads(1)
    return cv2


class DisFlow:
    """OpenCV's DIS flow (Kroeger et al. 2016), medium preset, on grey pictures. Raises ConfigError without OpenCV."""

    def __init__(self) -> None:
        self._cv2 = opencv()
        self._engine = self._cv2.DISOpticalFlow.create(self._cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
        self.name = _dis_name()

    def __call__(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        # first, second: uint8 (H, W, 3)
        grey = [self._cv2.cvtColor(np.ascontiguousarray(frame), self._cv2.COLOR_RGB2GRAY) for frame in (first, second)]
        return self._engine.calc(*grey, np.zeros((*grey[0].shape, 2), np.float32))


class RaftFlow:
    """torchvision's large RAFT (Teed and Deng 2020), 20 updates, float32; ``state`` is what its weights file holds."""

    def __init__(self, state: dict[str, Any], device: str = "cpu") -> None:
        from torchvision.models.optical_flow import raft_large

        self._model = raft_large(weights=None)
        self._model.load_state_dict(state)
        self._model = self._model.to(device).eval().requires_grad_(False)
        self._device = device
        self.name = _raft_name()

    def __call__(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        # first, second: uint8 (H, W, 3)
        import torch
        from torch.nn import functional

        pixels = torch.from_numpy(np.stack([first, second])).to(self._device).permute(0, 3, 1, 2).float() / 127.5 - 1
        height, width = first.shape[:2]
        more = [max(_RAFT_LEAST, -(-side // _RAFT_STEP) * _RAFT_STEP) - side for side in (height, width)]
        top, left = more[0] // 2, more[1] // 2
        pixels = functional.pad(pixels, (left, more[1] - left, top, more[0] - top), mode="replicate")
        with torch.no_grad():
            flow = self._model(pixels[:1], pixels[1:], num_flow_updates=_RAFT_UPDATES)[-1][0]  # (2, H + more, W + more)
        return np.ascontiguousarray(flow[:, top : top + height, left : left + width].permute(1, 2, 0).float().cpu().numpy())


def arrival(flow: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Columns and rows, each (H, W), at which a flow (H, W, 2) arrives."""
    height, width = flow.shape[:2]
    columns, rows = np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32)
    return columns + flow[..., 0], rows[:, None] + flow[..., 1]


def warp_back(picture: np.ndarray, flow: np.ndarray) -> np.ndarray:
    """Values of ``picture`` (H, W, C), float32, where ``flow`` (H, W, 2) arrives: bilinear, borders repeated."""
    cv2 = opencv()
    return cv2.remap(picture, *arrival(flow), cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)


def squared_length(flow: np.ndarray) -> np.ndarray:
    """Squared lengths (H, W) of a flow (H, W, 2)."""
    return flow[..., 0] ** 2 + flow[..., 1] ** 2


def is_visible(forward: np.ndarray, backward: np.ndarray) -> np.ndarray:
    """Boolean (H, W): the flow F stays in the frame and the backward flow B brings the pixel back.

    ``|F + B(x + F)|^2 <= 0.01 (|F|^2 + |B(x + F)|^2) + 0.5`` (Sundaram et al. 2010; Lai et al. 2018). Flows (H, W, 2) in pixels.
    """
    x, y = arrival(forward)
    inside = (x >= 0) & (x <= forward.shape[1] - 1) & (y >= 0) & (y <= forward.shape[0] - 1)
    returned = warp_back(backward, forward)
    lengths = squared_length(forward) + squared_length(returned)
    return inside & (squared_length(forward + returned) <= 0.01 * lengths + 0.5)


def flow_name(settings: Settings) -> str:
    """The name of the estimator that :func:`flow_estimator` would give, without loading it; "none" where there is none."""
    name = _raft_name() if _choice(settings) == "raft" else _dis_name()
    return "none" if _MISSING in name else name


def is_standin(name: str) -> bool:
    """Whether an estimator of this name stands in for RAFT, with which the metrics were defined."""
    return not name.startswith("raft")


def opencv_available() -> Availability:
    """Whether OpenCV is installed."""
    return Availability(True) if importlib.util.find_spec("cv2") else Availability(False, _NO_OPENCV)


def flow_backend(settings: Settings) -> Availability:
    """Whether metrics that look at pairs of frames can run: OpenCV, and what the chosen estimator needs, are installed."""
    if not opencv_available().ok:
        return opencv_available()
    if settings.flow == "raft" and not has_torchvision():
        return Availability(False, _NO_TORCHVISION)
    return Availability(True)


def flow_estimator(settings: Settings) -> FlowEstimator:
    """The estimator of a run: "auto" is RAFT where torchvision and its weights are on this machine, else DIS.

    Raises ConfigError, with the command to install what is missing, and ModelError when RAFT's weights can't be had.
    """
    if _choice(settings) == "dis":
        return DisFlow()
    if not has_torchvision():
        raise ConfigError(_NO_TORCHVISION)
    opencv()  # the metrics need it besides
    return RaftFlow(raft_state(settings), _torch_device(settings.device))


def _choice(settings: Settings) -> str:
    if settings.flow not in _ESTIMATORS:
        raise ConfigError(f"flow={settings.flow} is unknown: use one of {', '.join(_ESTIMATORS)}")
    if settings.flow != "auto":
        return settings.flow
    return "raft" if has_torchvision() and _local_weights(settings) else "dis"


def has_torchvision() -> bool:
    """Whether torchvision, which has RAFT's code, is installed."""
    return importlib.util.find_spec("torchvision") is not None


def _local_weights(settings: Settings) -> Path | None:
    """RAFT's weights file on this machine: in ``weights_dir``, else where torch keeps downloads."""
    import torch
    from torchvision.models.optical_flow import Raft_Large_Weights

    name = Raft_Large_Weights[_RAFT_WEIGHTS].url.rsplit("/", 1)[1]
    folders = [Path(torch.hub.get_dir()) / "checkpoints"]
    if settings.weights_dir:
        folders.insert(0, Path(settings.weights_dir))
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def raft_state(settings: Settings) -> dict[str, Any]:
    """RAFT's weights, downloaded where they are not on this machine yet. Needs torchvision. Raises ModelError."""
    import torch
    from torchvision.models.optical_flow import Raft_Large_Weights

    path = _local_weights(settings)
    if path is not None:
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # torch's loader raises many kinds
            raise ModelError(f"{path} holds no weights ({first_line(error)}): delete it, or use flow=dis") from None
    url = Raft_Large_Weights[_RAFT_WEIGHTS].url
    if settings.offline:
        raise ModelError(f"RAFT's weights are not on this machine: put {url} into weights_dir, or use flow=dis")
    try:
        return torch.hub.load_state_dict_from_url(url, map_location="cpu", progress=False, check_hash=True)
    except (OSError, RuntimeError) as error:
        raise ModelError(f"RAFT's weights can't be downloaded ({first_line(error)}): use flow=dis") from None


def _torch_device(name: str) -> str:
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return name


def _raft_name() -> str:
    return f"raft large {_RAFT_WEIGHTS} (torchvision {_version('torchvision')})"


def _dis_name() -> str:
    versions = [_version(name) for name in _OPENCV]
    return f"dis medium (opencv {next((v for v in versions if v != _MISSING), _MISSING)})"


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return _MISSING


class FlowMetric:
    """What a :class:`~phys_pipeline.evaluation.metric.PairMetric` that uses flow inherits: it can run where flow can."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def available(self) -> Availability:
        return flow_backend(self._settings)
