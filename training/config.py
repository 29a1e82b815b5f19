"""Every setting of the trainer in one dataclass, read from a YAML file and `key=value` overrides. Imports no torch."""

from __future__ import annotations

import dataclasses
import difflib
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import yaml

from phys_pipeline.atomic import atomic_file
from phys_pipeline.errors import ConfigError
from phys_pipeline.hub.names import is_repo_id
from training.spelling import LORA, flat_lora

OBJECTIVES = ("spectral", "anchored", "repaired", "sampled", "coherence_weighted", "preference", "flow", "ltd", "none")
MOTION_NAMES = ("spectral", "anchored", "repaired")  # the first of these in use is the log's `motion`
MOTION_TERMS = ("translation", "rotation", "scaling", "pace", "coherence")
_REORDERINGS = ("reverse", "shuffle", "stutter")  # corruptions that need no pixels
_CORRUPTIONS = (*_REORDERINGS, "jitter", "walk", "teleport", "rubber", "flicker", "cut")
CHOICES: dict[str, tuple[str, ...]] = {
    "frame_extraction": ("head", "middle", "uniform", "sliding"),
    "missing_captions": ("error", "skip"),
    "repeated_frames": ("skip", "allow"),
    "motion_space": ("latent", "pixel"),
    "motion_form": ("absolute", "excess", "anchored"),
    "motion_preset": ("calibrated", "paper"),
    "motion_sigma": ("smooth", "every_step"),
    "preference_form": ("dpo", "hinge"),
    "preference_space": ("latent", "pixel"),
    "flow_estimator": ("auto", "raft", "dis"),
    "sigma_law": ("stratified", "logit_normal", "uniform"),
    "precision": ("bf16", "fp16", "fp32"),
    "vae_precision": ("bf16", "fp16", "fp32"),
    "optimizer": ("adamw", "adamw8bit"),
    "parallel": ("ddp", "fsdp2"),
    "base_quantization": ("none", "int8", "nf4"),
}
LISTS: dict[str, tuple[str, ...]] = {
    "objective": OBJECTIVES,
    "motion_terms": MOTION_TERMS,
    "preference_corruptions": _CORRUPTIONS,
}
TRACKERS = ("tensorboard", "wandb", "trackio")
PRIVATE = (  # places on this machine: left out of what may be published with an adapter
    "model", "data", "video_root", "data_scores", "validation_data", "output_dir", "cache_dir", "resume", "push_to_hub",
)  # fmt: skip
_POSITIVE = (
    "frames", "height", "width", "fps", "samples_per_clip", "window_stride", "max_clip_seconds", "vae_batch_size", "sigma_max",
    "shift", "rank", "alpha", "max_train_steps", "train_batch_size", "gradient_accumulation_steps", "learning_rate",
    "max_grad_norm", "num_processes", "log_every", "num_epochs", "validation_quantiles", "motion_crop_frames",
    "motion_crop_size", "coherence_tau", "preference_beta", "flow_sigma_max", "repaired_sigma_max",
    "sampled_steps", "sampled_levels",
)  # fmt: skip
_NOT_NEGATIVE = (
    "motion_weight", "guidance", "lr_warmup_steps", "weight_decay", "seed", "checkpoint_every", "checkpoint_limit",
    "gradient_ratio_every", "validate_every", "anchored_weight", "coherence_strength", "preference_weight", "preference_margin",
    "repaired_weight", "flow_weight", "flow_smoothness", "ltd_strength", "sampled_weight", "sampled_keep",
)  # fmt: skip


@dataclass
class TrainConfig:
    """Settings of one training run. Sizes in pixels, `fps` in frames per second, `sigma` in [0, 1] (1 = pure noise)."""

    output_dir: str = "out/lora"  # adapter, provenance, log and checkpoints go here
    cache_dir: str = "out/cache"  # encoded clips and captions, shared by every run

    # base model
    model: str = "tiny"  # "tiny" (embedded), a diffusers folder, or a Hub id
    family: str | None = None  # default: the one that the model's files name; `phys-pipeline families` lists them
    expert: str | None = None  # of a model with several transformers, the one to train: Wan 2.2 has high and low (noise)

    # clips
    data: str = "samples/clips"  # folder of clips with .txt captions of the same name, or a table .csv, .jsonl or .parquet
    video_root: str | None = None  # folder that a table's paths are relative to; default the table's own
    data_scores: str | None = None  # scores of `phys-pipeline data score`: more columns to filter by
    data_filters: dict[str, Any] = field(default_factory=dict)  # {"aesthetic score": ">=5", "camera motion": "static|zoom_in"}
    frames: int = 16
    height: int = 64
    width: int = 64
    fps: float = 8.0  # clips are resampled to this rate by nearest timestamp, so that motion keeps its speed
    frame_extraction: str = "middle"  # head | middle | uniform | sliding
    samples_per_clip: int = 4  # windows per clip of `uniform`
    window_stride: int | None = None  # frames between windows of `sliding`; default half of `frames`
    max_clip_seconds: float | None = 20.0  # longer clips are read up to here; null reads them whole
    missing_captions: str = "error"  # error | skip
    buckets: Any = "off"  # off | auto (shapes of equal area around height x width) | [[frames, height, width], ...]
    repeated_frames: str = "skip"  # skip | allow: windows that would show one source frame twice
    vae_batch_size: int = 1  # windows encoded at once
    vae_precision: str = "fp32"  # bf16 | fp16 (CUDA only) | fp32: how clips are encoded (and decoded for motion_space=pixel)
    vae_tiling: bool = True  # encode large frames in tiles: less memory, faint seams

    # what is minimised beside the denoising loss: names that combine, see docs/training_objectives.md
    objective: list[str] = field(default_factory=lambda: ["spectral"])  # of OBJECTIVES; [none] is the denoising loss alone

    # motion loss on the predicted clean clip: spectral, anchored, repaired
    motion_weight: float = 0.1  # 0 leaves it out
    anchored_weight: float | None = None  # default: motion_weight
    repaired_weight: float | None = None  # default: motion_weight
    repaired_sigma_max: float = 0.4  # the repaired loss fades out smoothly towards this noise level
    motion_space: str = "pixel"  # pixel (through the frozen VAE decoder, with gradients) | latent
    motion_form: str = "excess"  # absolute | excess (beyond the clean clip's own loss); anchored: `anchored` for `spectral`
    motion_preset: str = "calibrated"  # calibrated | paper
    motion_overrides: dict[str, Any] = field(default_factory=dict)  # fields of SpectralConfig, e.g. motion_overrides.patches=2
    motion_terms: list[str] = field(default_factory=lambda: list(MOTION_TERMS))  # parts of the spectral loss; fewer to ablate
    motion_sigma: str = "smooth"  # smooth (fades out towards sigma_max) | every_step (in full at every noise level, as printed)
    sigma_max: float = 0.7  # the motion loss fades out smoothly towards this noise level
    motion_crop_frames: int | None = None  # motion_space=pixel decodes a random piece of so many latent frames; null: all
    motion_crop_size: int | None = None  # side of that piece in pixels; null: the whole frame

    # motion loss of videos that the model samples itself, from the batch's captions and noise
    sampled_weight: float = 1.0
    sampled_steps: int = 10  # of the sampler; a training step runs the network 2 x so often, see docs/training_objectives.md
    sampled_levels: int = 1  # noise levels of these, drawn, at which x0-hat is corrected: each keeps the network's activations
    sampled_keep: float = 2.0  # weight of staying with the base model's detail and amount of motion

    # the other candidates
    coherence_tau: float = 0.1  # coherence_weighted: a block of the clip weighs exp(-its motion loss / tau)
    coherence_strength: float = 1.0  # 0 weighs everything alike
    coherence_gate: float = (
        0.0  # share of the moving blocks, the most coherent, that weigh alike: their loss counts from there on
    )
    ltd_strength: float = 1.0  # ltd: 0 weighs everything alike, 1 gives still places no weight
    preference_weight: float = 0.1  # with beta=500 its gradient is about that of the denoising loss (embedded model, 12 steps)
    preference_form: str = "dpo"  # dpo | hinge
    preference_beta: float = 500.0  # dpo: errors are means over elements, so this is large
    preference_margin: float = 0.01  # hinge: the gain in mean squared error after which a pair no longer counts
    preference_space: str = "latent"  # latent (frames reordered) | pixel (through the autoencoder: any corruption)
    preference_corruptions: list[str] = field(default_factory=lambda: list(_REORDERINGS))
    preference_by_score: bool = False  # a pair counts as far as its copy's motion loss is higher (in motion_space)
    flow_weight: float = 0.1
    flow_sigma_max: float = 0.5  # the flow loss fades out smoothly towards this noise level
    flow_estimator: str = "auto"  # raft | dis | auto: raft where torchvision is installed
    flow_smoothness: float = 0.1  # weight of the flow's smoothness in the logged value; it has no gradient

    # noise levels
    sigma_law: str = "stratified"  # stratified | logit_normal | uniform
    shift: float | None = None  # timestep shift; default that of the model's scheduler
    guidance: float | None = None  # embedded guidance (the model sees 1000 times this); default the family's
    caption_dropout: float = 0.0  # share of captions replaced by the empty one

    # what is trained
    # also written `lora: {rank: 16, alpha: 8, targets: REGEX}`, and `lora: null` for `rank: null`
    rank: int | None = 16  # of the LoRA adapter; null trains every weight of the transformer, kept in float32
    alpha: float | None = None  # default: rank
    lora_targets: str | None = None  # regular expression of module names; default the family's transformer blocks

    # optimiser
    max_train_steps: int = 1000
    num_epochs: float | None = None  # passes over the samples; sets max_train_steps
    train_batch_size: int = 1  # per process
    gradient_accumulation_steps: int = 1
    learning_rate: float = 1e-4
    lr_warmup_steps: int = 50
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    optimizer: str = "adamw"  # adamw | adamw8bit (needs bitsandbytes)
    ema_decay: float | None = None  # average the trained weights over steps, such as 0.999; saved beside them in ema/
    precision: str = "bf16"  # bf16 | fp16 (CUDA only) | fp32
    gradient_checkpointing: bool = False
    parallel: str = "ddp"  # several processes: ddp (each holds the whole model) | fsdp2 (each holds a slice of everything)
    block_offload: bool = False  # frozen weights of the blocks wait on the CPU; needs gradient_checkpointing
    base_quantization: str = "none"  # none | int8 (needs torchao) | nf4 (needs bitsandbytes): frozen linear layers of the blocks
    seed: int = 0
    num_processes: int | None = None  # refuse to run with another number of processes; null accepts any

    # records
    checkpoint_every: int = 500  # optimiser steps; 0 writes none
    checkpoint_limit: int = 2  # newest checkpoints kept; 0 keeps all
    resume: str = "false"  # false | true (newest checkpoint of output_dir) | a checkpoint folder
    log_every: int = 1
    trackers: list[str] = field(
        default_factory=lambda: ["tensorboard"]
    )  # tensorboard | wandb | trackio; [] writes log.jsonl alone
    push_to_hub: str | None = None  # OWNER/NAME: publish the finished adapter, privately where new (docs/publishing.md)
    gradient_ratio_every: int = 0  # steps between measurements of the two losses' gradient norms; 0 never (two extra backwards)

    # validation: base and trained model on the same noise, before the first and after the last step
    validate_every: int = 0  # and every so many steps; 0 not in between
    validation_data: str | None = None  # folder or table of held-out clips with captions; data_filters leave it alone
    validation_split: float = 0.0  # or the share of the clips in `data` that is held out
    validation_quantiles: int = 5  # noise levels at which held-out clips are scored: middles of equal slices of the sigma law
    validation_prompts: list[str] = field(default_factory=list)  # videos are made from these, with and without the adapter
    validation_seeds: list[int] = field(default_factory=lambda: [0])

    def __post_init__(self) -> None:
        types = get_type_hints(type(self))
        for key in types:
            setattr(self, key, _coerce(key, getattr(self, key), types[key]))
        for key, allowed in CHOICES.items():
            if getattr(self, key) not in allowed:
                near = _nearest(str(getattr(self, key)), allowed)
                raise ConfigError(f"{key}={getattr(self, key)!r} is not one of {', '.join(allowed)}{near}")
        for key, allowed in LISTS.items():
            self._check_list(key, allowed)
        for key in _POSITIVE:
            value = getattr(self, key)
            if value is not None and not value > 0:
                raise ConfigError(f"{key}={value} must be greater than 0")
        for key in _NOT_NEGATIVE:
            value = getattr(self, key)
            if value is not None and value < 0:
                raise ConfigError(f"{key}={value} must not be negative")
        for key in ("caption_dropout", "coherence_gate"):
            if not 0.0 <= getattr(self, key) < 1.0:
                raise ConfigError(f"{key}={getattr(self, key)} must lie in [0, 1)")
        for key in ("sigma_max", "flow_sigma_max", "repaired_sigma_max"):
            if getattr(self, key) > 1.0:
                raise ConfigError(f"{key}={getattr(self, key)} must lie in (0, 1]")
        for key in ("coherence_strength", "ltd_strength"):
            if getattr(self, key) > 1.0:
                raise ConfigError(f"{key}={getattr(self, key)} must lie in [0, 1]")
        shortest = min([self.frames] if isinstance(self.buckets, str) else [bucket[0] for bucket in self.buckets])
        if self.active and shortest < 3:
            raise ConfigError(
                f"motion_weight needs at least 3 frames, frames={shortest}, and so do the other objectives: "
                "set objective=none or more frames"
            )
        if self.sampled_levels > self.sampled_steps:
            raise ConfigError(f"sampled_levels={self.sampled_levels} exceeds sampled_steps={self.sampled_steps}: lower it")
        if "none" in self.objective and len(self.objective) > 1:
            raise ConfigError("objective=none stands alone: leave it out or leave the others out")
        if self.preference_space == "latent" and not set(self.preference_corruptions) <= set(_REORDERINGS):
            raise ConfigError(
                f"preference_space=latent can only {', '.join(_REORDERINGS)}: use preference_space=pixel for the others"
            )
        if self.motion_space == "latent" and (self.motion_crop_frames or self.motion_crop_size):
            raise ConfigError("motion_crop_frames and motion_crop_size save decoding: they need motion_space=pixel")
        if not 0.0 <= self.validation_split < 1.0:
            raise ConfigError(f"validation_split={self.validation_split} must lie in [0, 1)")
        if self.validation_split and self.validation_data:
            raise ConfigError("validation_split and validation_data are both set: use one of them")
        if self.validate_every and not (self.validation_split or self.validation_data or self.validation_prompts):
            raise ConfigError(
                "validate_every needs something to validate on: validation_split, validation_data or validation_prompts"
            )
        if self.validation_prompts and not self.validation_seeds:
            raise ConfigError("validation_seeds is empty: name at least one, or leave validation_prompts out")
        if self.ema_decay is not None and not 0.0 < self.ema_decay < 1.0:
            raise ConfigError(f"ema_decay={self.ema_decay} must lie in (0, 1)")
        if self.push_to_hub is not None and (not is_repo_id(self.push_to_hub) or self.rank is None):
            raise ConfigError(f"push_to_hub={self.push_to_hub!r} publishes an adapter as OWNER/NAME: write it so, and set rank")
        for name in self.trackers:
            if name not in TRACKERS:
                raise ConfigError(f"trackers: {name!r} is not one of {', '.join(TRACKERS)}{_nearest(name, TRACKERS)}")

    def _check_list(self, key: str, allowed: tuple[str, ...]) -> None:
        names: list[str] = getattr(self, key)
        if not names:
            raise ConfigError(f"{key} is empty: name at least one of {', '.join(allowed)}")
        for name in names:
            if name not in allowed:
                raise ConfigError(f"{key}: {name!r} is not one of {', '.join(allowed)}{_nearest(name, allowed)}")
        if len(set(names)) < len(names):
            raise ConfigError(f"{key}: {', '.join(names)} names one twice")

    @property
    def weights(self) -> dict[str, float]:
        """Weight of every candidate, used or not."""
        return {
            "spectral": self.motion_weight,
            "anchored": self.motion_weight if self.anchored_weight is None else self.anchored_weight,
            "repaired": self.motion_weight if self.repaired_weight is None else self.repaired_weight,
            "sampled": self.sampled_weight,
            "coherence_weighted": self.coherence_strength,
            "preference": self.preference_weight,
            "flow": self.flow_weight,
            "ltd": self.ltd_strength,
            "none": 0.0,
        }

    @property
    def active(self) -> tuple[str, ...]:
        """The objectives with a weight above 0. `motion_form: anchored`, the older way to say it, puts anchored for spectral."""
        older = self.motion_form == "anchored"
        names = dict.fromkeys("anchored" if older and name == "spectral" else name for name in self.objective)
        return tuple(name for name in names if self.weights[name] > 0)

    @property
    def lora_alpha(self) -> float:
        """Numerator of the adapter's scale alpha / rank."""
        return float(self.rank or 1) if self.alpha is None else self.alpha

    @property
    def needs_vae(self) -> bool:
        """Whether a training step decodes or encodes."""
        active = set(self.active)
        in_pixels = self.motion_space == "pixel" and bool(
            active & {"spectral", "anchored", "repaired", "sampled", "coherence_weighted"}
        )
        scored = self.preference_by_score and self.motion_space == "pixel"
        return in_pixels or "flow" in active or ("preference" in active and (self.preference_space == "pixel" or scored))

    def for_validation(self) -> TrainConfig:
        """The settings that read `validation_data`: `data_filters` and `data_scores` are about `data`."""
        return TrainConfig(**{**self.to_dict(), "data": self.validation_data, "data_filters": {}, "data_scores": None})

    def to_dict(self) -> dict[str, Any]:
        """Plain values, in the order of the fields."""
        return dataclasses.asdict(self)

    def save(self, path: str | Path) -> None:
        """Write the settings as YAML that `load_config` reads back to an equal object."""
        with atomic_file(path) as temporary:
            temporary.write_text(yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True), encoding="utf-8")


def load_config(path: str | Path | None = None, overrides: list[str] | tuple[str, ...] = ()) -> TrainConfig:
    """Read a YAML file (or the defaults), apply `key=value` overrides in order, and check everything.

    `motion_overrides.NAME=value` sets one field of the spectral configuration, `lora.NAME=value` one of the adapter. Raises
    ConfigError with one line.
    """
    values: dict[str, Any] = {}
    if path is not None:
        file = Path(path)
        if not file.is_file():
            raise ConfigError(f"{file}: no such config file; training/configs/ holds examples")
        try:
            loaded = yaml.safe_load(file.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file}: not valid YAML ({' '.join(str(error).split())})") from None
        if loaded is not None and not isinstance(loaded, dict):
            raise ConfigError(f"{file}: expected `key: value` lines, found {type(loaded).__name__}")
        values.update(flat_lora(loaded or {}))
    line: dict[str, Any] = {}
    for text in overrides:
        key, equals, raw = text.partition("=")
        if not equals or not key:
            raise ConfigError(f"{text!r} is not an override; write key=value")
        try:
            value = yaml.safe_load(raw) if raw.strip() else raw
        except yaml.YAMLError:
            value = raw
        about_lora = key.strip().split(".")[0] in ("lora", *LORA.values())
        _assign(line if about_lora else values, key.strip(), value)
    values.update(flat_lora(line))
    known = [f.name for f in dataclasses.fields(TrainConfig)]
    for key in values:
        if key not in known:
            raise ConfigError(f"unknown setting {key!r}{_nearest(str(key), known)}")
    return TrainConfig(**values)


def _assign(values: dict[str, Any], dotted: str, value: Any) -> None:
    head, *rest = dotted.split(".")
    if not rest:
        values[head] = value
        return
    if head not in ("motion_overrides", "lora") or len(rest) > 1:
        raise ConfigError(f"unknown setting {dotted!r}; only motion_overrides.NAME and lora.NAME take a dot")
    inner = values.get(head) or {}
    if not isinstance(inner, dict):
        raise ConfigError(f"{head} must be a mapping to take {dotted}")
    values[head] = {**inner, rest[0]: value}


def _nearest(name: str, known: list[str] | tuple[str, ...]) -> str:
    match = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {match[0]!r}?" if match else ""


def _coerce(key: str, value: Any, kind: Any) -> Any:
    """Bring a YAML value to the field's type, or say in one line what was expected."""
    if key == "buckets":
        return _coerce_buckets(value)
    if get_origin(kind) is list:
        if key in LISTS and isinstance(value, str):  # objective=anchored,ltd
            value = [part.strip() for part in value.split(",") if part.strip()]
        values = [] if value is None else value if isinstance(value, list) else [value]
        return [_coerce(key, item, get_args(kind)[0]) for item in values]
    options = [a for a in get_args(kind) if a is not type(None)] if get_origin(kind) is not dict else []
    if options:  # X | None
        if value is None:
            return None
        kind = options[0]
    if kind is bool and isinstance(value, bool):
        return value
    if kind is int and (type(value) is int or (isinstance(value, float) and value.is_integer())):  # bool is an int too
        return int(value)
    if kind is float and not isinstance(value, bool):
        try:
            number = float(value)  # PyYAML reads 1e-4 as text
        except (TypeError, ValueError):
            number = math.nan
        if math.isfinite(number):
            return number
    if kind is str:
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, (int, float)):
            return str(value)
    if get_origin(kind) is dict and isinstance(value, dict):
        return dict(value)
    if get_origin(kind) is dict and value is None:
        return {}
    name = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}.get(kind, "a mapping")
    raise ConfigError(f"{key}={value!r} should be {name}")


def _coerce_buckets(value: Any) -> str | list[list[int]]:
    """off, auto, or a list of [frames, height, width] without repeats; YAML reads a bare `off` as false."""
    if value in (False, None, "off"):
        return "off"
    if value == "auto":
        return "auto"
    triples = isinstance(value, (list, tuple)) and all(isinstance(b, (list, tuple)) and len(b) == 3 for b in value)
    if not triples or not value or not all(type(n) is int and n > 0 for bucket in value for n in bucket):
        raise ConfigError(f"buckets={value!r} should be off, auto or a list such as [[16, 64, 64], [16, 48, 80]]")
    return [list(bucket) for bucket in dict.fromkeys(tuple(bucket) for bucket in value)]
