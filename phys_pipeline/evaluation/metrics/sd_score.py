"""SD-Score: how much the frames look like images that a text-to-image model makes of the prompt, by CLIP.

Reference images lie in a pack: a folder with ``ID/*.png`` and a manifest with their hashes (:func:`make_references`); any folder
of images sorted by id works too. EvalCrafter (1275bda) compares frames in 0..255 with images in 0..1, neither normalised;
protocol "evalcrafter" repeats that. Its images are unseeded; these are seeded.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from phys_pipeline.atomic import atomic_file, atomic_folder
from phys_pipeline.errors import DataError, ModelError, first_line
from phys_pipeline.evaluation.clip import DecodedClip
from phys_pipeline.evaluation.metric import Availability, MetricInfo, MetricResult, Settings, Weights, skipped
from phys_pipeline.evaluation.metrics.clip_encoder import CLIP, CLIP_WEIGHTS, ClipEncoder, clip_encoder, frame_embeddings
from phys_pipeline.evaluation.pretrained import is_offline
from phys_pipeline.media import read_video

SDXL_WEIGHTS = Weights(
    "stabilityai/stable-diffusion-xl-base-1.0", "462165984030d82259a11f4367a4eed129e94a7b", 6_940_000_000,
    "CreativeML OpenRAIL++-M", ("model_index.json", "*/*.json", "*/*.txt", "*/*.fp16.safetensors"),
)  # fmt: skip
MANIFEST = "manifest.json"
SCHEMA_VERSION = 1
IMAGES, STEPS = 5, 20  # per prompt; EvalCrafter's numbers
NATIVE_SIZE, EVALCRAFTER_SIZE = 1024, 512  # pixels; EvalCrafter runs SDXL far below the size it was trained for
_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
_FOLDER_NAME = re.compile(r"[^./\\\0][^/\\\0]*")


class SdScore:
    """``sd_score``; references come from the folder in option ``sd_score.references``."""

    infos: ClassVar[tuple[MetricInfo, ...]] = (
        MetricInfo(
            "sd_score", "SD Score", "cosine x 100", "up", ("paper", "text"),
            "Mean CLIP cosine of all frames with five SDXL images of the prompt.",
            low=-100, high=100, min_frames=1, weights=(CLIP_WEIGHTS, SDXL_WEIGHTS),
        ),
    )  # fmt: skip

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._encoder: ClipEncoder | None = None
        self._manifest: dict[str, Any] = {}

    def available(self) -> Availability:
        folder = self.settings.options.get("sd_score.references")
        if folder is None or not Path(str(folder)).is_dir():
            return Availability(
                False,
                "it needs reference images: make them (phys_pipeline.evaluation.metrics.sd_score.make_references) or "
                "take your own, in FOLDER/ID/*.png, and give --option sd_score.references=FOLDER",
            )
        return CLIP.available(self.settings)

    @property
    def _folder(self) -> Path:
        return Path(str(self.settings.options["sd_score.references"]))

    def setup(self) -> None:
        self._manifest = read_manifest(self._folder)
        self._encoder = clip_encoder(self.settings)

    def close(self) -> None:
        self._encoder = None

    def compute(self, clip: DecodedClip) -> Mapping[str, MetricResult]:
        assert self._encoder is not None, "setup() comes first"
        sample, protocol = clip.sample, self.settings.protocol
        files = reference_files(self._folder, sample.id)
        if not files:
            return {"sd_score": skipped(f"the references have no images of {sample.id}")}
        _check(self._folder, self._manifest, sample.id, sample.prompt, files)
        images = [read_video(file).frames[0] for file in files]
        references = self._encoder.images(images, "unit" if protocol == "evalcrafter" else "processor")
        cosines = np.clip(frame_embeddings(clip, self._encoder, protocol) @ references.T, -1, 1)
        details = {"images": len(files), "pack": pack_digest(self._folder) if self._manifest else None}
        value, per_frame = 100 * float(cosines.mean()), (100 * cosines.mean(axis=1)).tolist()
        return {"sd_score": MetricResult(value, per_frame=per_frame, details=details, backend=self._encoder.name)}


def reference_files(folder: Path, id: str) -> list[Path]:
    """The images of one prompt, sorted by name; none if it has none."""
    return sorted(file for file in _subfolder(folder, id).glob("*") if file.suffix.lower() in _SUFFIXES)


def read_manifest(folder: Path) -> dict[str, Any]:
    """A pack's manifest; {} for a folder of images without one. Raises DataError for a damaged or newer one."""
    file = folder / MANIFEST
    if not file.is_file():
        return {}
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
        schema = manifest["schema"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file} is no manifest of reference images ({first_line(error)}): make the pack again") from error
    if schema != SCHEMA_VERSION:
        raise DataError(f"{file} has schema {schema}, this version reads {SCHEMA_VERSION}: make the pack again")
    return manifest


def pack_digest(folder: Path) -> str:
    """SHA-256 of the manifest, which holds the hash of every image."""
    return hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()


def make_references(
    prompts: Mapping[str, str], folder: str | Path, settings: Settings, *, count: int = IMAGES, size: int | None = None
) -> Path:
    """Make a pack of ``count`` SDXL images for each prompt; images that are there, of the same settings, are kept.

    Args:
        prompts: id -> prompt.
        folder: of the pack.
        settings: device, seed and protocol; option ``sd_score.model`` takes a local diffusers folder in SDXL's place.
        size: pixels; None is SDXL's own 1024, and EvalCrafter's 512 in its protocol.

    Raises:
        ModelError: SDXL can't be had. DataError: an id that is no file name, or a damaged manifest.
    """
    folder = Path(folder)
    size = size or (EVALCRAFTER_SIZE if settings.protocol == "evalcrafter" else NATIVE_SIZE)
    made_with = {"model": _model_name(settings), "seed": settings.seed, "count": count, "size": size, "steps": STEPS}
    old = read_manifest(folder)
    entries: dict[str, Any] = dict(old.get("images", {})) if old.get("made_with") == made_with else {}
    pipeline = None
    for id, path in {id: _subfolder(folder, id) for id in prompts}.items():
        entry, prompt = entries.get(id, {}), prompts[id]
        if entry.get("prompt") == prompt and _hashes(path) == entry.get("sha256"):
            continue
        pipeline = pipeline or _sdxl(settings)
        with atomic_folder(path) as temporary:
            for index in range(count):
                _image(pipeline, prompt, _image_seed(settings.seed, id, index), size).save(temporary / f"{index}.png")
        entries[id] = {"prompt": prompt, "sha256": _hashes(path)}
        with atomic_file(folder / MANIFEST) as temporary:
            content = {"schema": SCHEMA_VERSION, "made_with": made_with, "images": dict(sorted(entries.items()))}
            temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return folder


def _check(folder: Path, manifest: Mapping[str, Any], id: str, prompt: str, files: list[Path]) -> None:
    """Raises DataError when the images are not those of the manifest, or were made for another prompt."""
    if not manifest:
        return
    entry = manifest["images"].get(id, {})
    if entry.get("sha256") != _hashes(_subfolder(folder, id)):
        raise DataError(f"the {len(files)} images of {id} in {folder} are not those of its manifest: make the pack again")
    if entry.get("prompt") != prompt:
        raise DataError(f"the images of {id} in {folder} were made for another prompt: make the pack again")


def _subfolder(folder: Path, id: str) -> Path:
    if not _FOLDER_NAME.fullmatch(id):
        raise DataError(f"{id!r} can't be a folder of reference images: use ids without slashes that begin with no dot")
    return folder / id


def _hashes(folder: Path) -> dict[str, str]:
    files = reference_files(folder.parent, folder.name)
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def _model_name(settings: Settings) -> str:
    local = settings.options.get("sd_score.model")
    return Path(str(local)).name if local else f"{SDXL_WEIGHTS.repository}@{SDXL_WEIGHTS.revision}"


def _image_seed(seed: int, id: str, index: int) -> int:
    """A seed of its own for every image, whatever else is in the pack."""
    return int.from_bytes(hashlib.sha256(f"{seed} {id} {index}".encode()).digest()[:6], "big")


def _image(pipeline: Any, prompt: str, seed: int, size: int) -> Any:
    import torch

    generator = torch.Generator("cpu").manual_seed(seed)
    return pipeline(prompt, height=size, width=size, num_inference_steps=STEPS, generator=generator).images[0]


def _sdxl(settings: Settings) -> Any:
    import torch
    from diffusers import StableDiffusionXLPipeline

    local = settings.options.get("sd_score.model")
    keywords: dict[str, Any] = {"torch_dtype": torch.float16 if settings.device.startswith("cuda") else torch.float32}
    if local is None:
        keywords |= {"revision": SDXL_WEIGHTS.revision, "variant": "fp16", "local_files_only": is_offline(settings)}
    try:
        pipeline = StableDiffusionXLPipeline.from_pretrained(
            str(local or SDXL_WEIGHTS.repository), use_safetensors=True, add_watermarker=False, **keywords
        )
    except Exception as error:  # network, gated, missing files: the libraries have no common base
        raise ModelError(
            f"can't load {_model_name(settings)} ({first_line(error)}): run `phys-pipeline doctor --fetch sd_score` online, or "
            "give a local diffusers folder with --option sd_score.model=FOLDER"
        ) from error
    pipeline.set_progress_bar_config(disable=True)
    return pipeline.to(settings.device)
