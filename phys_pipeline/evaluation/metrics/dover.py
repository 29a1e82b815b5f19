"""DOVER's aesthetic and technical quality (Wu et al. 2023) from a model file that the user exports.

DOVER's code and weights have a non-commercial licence (S-Lab), so none of it is here. Its repository exports an ONNX model with
the inputs ``aes_view`` (1, 3, 32, 224, 224) and ``tech_view`` (N, 3, 32, 224, 224); the views are cut by own code.

Protocol "evalcrafter" repeats what EvalCrafter (1275bda) computes: the aesthetic view of a clip under 32 frames is its first
frame, of one under 64 its first 32; the technical view starts again at the clip's end; frames with a side below 224 are enlarged
with grey levels rounded down, and patches then lie on a grid of the size before; scores are rescaled by the mean and deviation
of EvalCrafter's own 700 videos. Offsets there are random; here they come from the run's seed in both protocols.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from phys_pipeline.errors import ModelError, first_line
from phys_pipeline.evaluation.clip import DecodedClip
from phys_pipeline.evaluation.metric import Availability, MetricInfo, MetricResult, Protocols, Settings, Weights
from phys_pipeline.evaluation.metrics.indices import reflected
from phys_pipeline.evaluation.metrics.pixels import IMAGENET_NORMALISATION, aliased, normalised

DOVER_WEIGHTS = Weights(  # a file to supply; its size is approximate
    "dover.onnx, exported from huggingface.co/teowu/DOVER", "main", 240_000_000, "S-Lab License 1.0, non-commercial"
)
LENGTH, STRIDE, CLIPS = 32, 2, 3
SIZE, GRID, PATCH = 224, 7, 32
# mean and deviation of the raw (aesthetic, technical) scores that are rescaled to 0..100
RESCALING = {
    "dover": ((-0.08285, 0.03774), (0.1107, 0.07355)),  # natural videos, DOVER f1ddc96
    "evalcrafter": ((0.1253, 0.0318), (-0.0758, 0.0129)),  # EvalCrafter's own 700 videos
}
_INPUTS = ("aes_view", "tech_view")


def aesthetic_frames(frames: int, protocol: Protocols, random: np.random.Generator) -> np.ndarray:
    """Numbers ``(32,)`` of the single frames of the aesthetic view, spread over the clip."""
    if protocol == "fixed":
        return np.rint(np.linspace(0, frames - 1, LENGTH)).astype(int)
    share = frames // LENGTH  # 0 for short clips, and then every number is 0
    spare = share - STRIDE
    return share * np.arange(LENGTH) + (random.integers(0, spare, LENGTH) if spare > 0 else 0)


def technical_frames(frames: int, clips: int, protocol: Protocols, random: np.random.Generator) -> np.ndarray:
    """Numbers ``(clips, 32)`` of the frames of the technical view, stride 2."""
    steps = np.arange(LENGTH) * STRIDE
    if protocol == "fixed":
        starts = np.rint(np.linspace(0, max(frames - steps[-1] - 1, 0), clips)).astype(int)
        return reflected(starts[:, None] + steps, frames)
    spare = frames - LENGTH * STRIDE
    starts = random.integers(0, spare, clips) if spare > 0 else np.zeros(clips, int)
    return (starts[:, None] + steps) % frames


def fragments(frames: np.ndarray, protocol: Protocols, random: np.random.Generator) -> np.ndarray:
    """A 7x7 mosaic ``uint8 (T, 224, 224, 3)`` of 32x32 patches of ``uint8 (T, H, W, 3)``, at the same place in every frame.

    Frames with a side below 224 are enlarged first.
    """
    height, width = frames.shape[1:3]
    ratio = min(height, width) / SIZE
    if ratio < 1:
        scaled = aliased(list(frames), int(height / ratio), int(width / ratio)).permute(0, 2, 3, 1)
        if protocol == "fixed":
            scaled = scaled.round()
            height, width = scaled.shape[1:3]
        frames = scaled.byte().numpy()
    mosaic = np.empty((len(frames), SIZE, SIZE, 3), np.uint8)
    offsets = random.integers(0, [[[max(side // GRID - PATCH, 1)]] for side in (height, width)], (2, GRID, GRID))
    for row in range(GRID):
        for column in range(GRID):
            top = max(min(height // GRID * row, height - PATCH), 0) + offsets[0, row, column]
            left = max(min(width // GRID * column, width - PATCH), 0) + offsets[1, row, column]
            place = np.s_[:, row * PATCH : (row + 1) * PATCH, column * PATCH : (column + 1) * PATCH]
            mosaic[place] = frames[:, top : top + PATCH, left : left + PATCH]
    return mosaic


def aesthetic_view(frames: np.ndarray, protocol: Protocols, random: np.random.Generator) -> np.ndarray:
    """``float32 (1, 3, 32, 224, 224)`` of ``uint8 (T, H, W, 3)``: whole frames squashed as DOVER was trained, no antialiasing."""
    chosen = frames[aesthetic_frames(len(frames), protocol, random)]
    return _model_input(aliased(list(chosen), SIZE, SIZE).round().permute(0, 2, 3, 1).byte().numpy()[None])


def technical_view(frames: np.ndarray, clips: int, protocol: Protocols, random: np.random.Generator) -> np.ndarray:
    """``float32 (clips, 3, 32, 224, 224)`` of ``uint8 (T, H, W, 3)``: patches at native resolution, new places in each clip."""
    numbers = technical_frames(len(frames), clips, protocol, random)
    return _model_input(np.stack([fragments(frames[row], protocol, random) for row in numbers]))


def rescaled(raw: float, mean: float, deviation: float) -> float:
    """A raw score on 0..100: the logistic function of its distance from a mean."""
    return 50 * (1 + math.tanh((raw - mean) / deviation / 2))


class Dover:
    """``vqa_a`` and ``vqa_t``. The model file: option ``dover.onnx``, else ``dover.onnx`` in the folder of weights."""

    infos: ClassVar[tuple[MetricInfo, ...]] = (
        MetricInfo(
            "vqa_a", "VQA_A", "0-100", "up", ("paper", "quality"),
            "DOVER's aesthetic score of 32 whole frames, rescaled.",
            low=0, high=100, packages=("onnxruntime",), weights=(DOVER_WEIGHTS,),
        ),
        MetricInfo(
            "vqa_t", "VQA_T", "0-100", "up", ("paper", "quality"),
            "DOVER's technical score of patches at native resolution, rescaled.",
            low=0, high=100, packages=("onnxruntime",), weights=(DOVER_WEIGHTS,),
        ),
    )  # fmt: skip

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._session: Any = None

    def available(self) -> Availability:
        import importlib.util

        missing = []
        if importlib.util.find_spec("onnxruntime") is None:
            missing.append("run `pip install 'phys-pipeline[dover]'`")
        if not self._file.is_file():
            missing.append(
                f"{self._file} is missing: export DOVER to ONNX with its repository's convert_to_onnx.py (weights of "
                "huggingface.co/teowu/DOVER, non-commercial) and give the file with --option dover.onnx=FILE"
            )
        return Availability(not missing, "; ".join(missing))

    @property
    def _file(self) -> Path:
        return Path(self.settings.options.get("dover.onnx") or Path(self.settings.weights_dir or ".") / "dover.onnx")

    def setup(self) -> None:
        import onnxruntime

        usable = onnxruntime.get_available_providers()
        wanted = ["CUDAExecutionProvider"] if self.settings.device.startswith("cuda") else []
        providers = [name for name in [*wanted, "CPUExecutionProvider"] if name in usable]
        try:
            self._session = onnxruntime.InferenceSession(str(self._file), providers=providers)
        except Exception as error:  # onnxruntime's own classes, not all exported
            raise ModelError(f"{self._file} is no usable ONNX model ({first_line(error)}): export DOVER again") from error
        found = sorted(entry.name for entry in self._session.get_inputs())
        if found != sorted(_INPUTS) or len(self._session.get_outputs()) != 2:
            raise ModelError(f"{self._file} must have the inputs aes_view and tech_view and two outputs; its inputs are {found}")

    def close(self) -> None:
        self._session = None

    def compute(self, clip: DecodedClip) -> Mapping[str, MetricResult]:
        protocol = self.settings.protocol
        random = np.random.default_rng(self.settings.seed)
        shape = next(entry.shape for entry in self._session.get_inputs() if entry.name == "tech_view")
        clips = shape[0] if isinstance(shape[0], int) else CLIPS  # an export without dynamic axes wants its own number
        views = {
            "aes_view": aesthetic_view(clip.frames, protocol, random),
            "tech_view": technical_view(clip.frames, clips, protocol, random),
        }
        outputs, named = self._outputs()
        scores = [np.atleast_1d(values) for values in self._session.run(outputs, views)]
        per_view = [values.reshape(len(values), -1).mean(axis=1) for values in scores]
        details: dict[str, Any] = {"short": len(clip.frames) < LENGTH, "outputs_named": named, "technical_clips": clips}
        results = {}
        for index, key in enumerate(("vqa_a", "vqa_t")):
            raw = float(per_view[index].mean())
            scales = {f"rescaled_{name}": rescaled(raw, *constants[index]) for name, constants in RESCALING.items()}
            value = scales["rescaled_evalcrafter" if protocol == "evalcrafter" else "rescaled_dover"]
            own = {"raw": raw, "raw_per_view": per_view[index].tolist(), **scales, **details}
            results[key] = MetricResult(value, details=own, backend=f"dover {self._file.name}")
        return results

    def _outputs(self) -> tuple[list[str], bool]:
        """Names of the aesthetic and the technical output; by order, as DOVER's export writes them, if the names do not tell."""
        names = [entry.name for entry in self._session.get_outputs()]
        aesthetic = [name for name in names if "aes" in name.lower()]
        technical = [name for name in names if "tech" in name.lower()]
        if len(aesthetic) == len(technical) == 1:
            return [aesthetic[0], technical[0]], True
        return names, False


def _model_input(frames: np.ndarray) -> np.ndarray:
    """``uint8 (N, T, H, W, 3)`` -> ``float32 (N, 3, T, H, W)``, less ImageNet's mean, over its deviation."""
    return np.stack([normalised(clip, IMAGENET_NORMALISATION).numpy().transpose(1, 0, 2, 3) for clip in frames])
