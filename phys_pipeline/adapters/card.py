"""The model card of a published adapter, made of its provenance and checked before anything is sent. Equal input, equal bytes."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phys_pipeline.adapters.formats import WEIGHTS_FILE
from phys_pipeline.adapters.layers import adapted_component
from phys_pipeline.adapters.licences import licence_of
from phys_pipeline.errors import AdapterError, PhysPipelineError, first_line
from phys_pipeline.families import FamilySpec, get_family
from phys_pipeline.hub import is_hub_source

RELATIONS = ("adapter", "finetune", "merge", "quantized")
_SHOWN_PROMPTS = 4
_EXAMPLE_PROMPT = "a ball rolls to the right"


@dataclass(frozen=True)
class Sample:
    """A video of the commit: its prompt, and where it lies. ``pair`` is the same beside the base model's, from equal noise."""

    prompt: str
    file: str
    pair: str | None = None


@dataclass(frozen=True)
class CardFacts:
    """What the card is about. ``base_model`` is a Hub id or None, ``comfyui`` the paths of the files for ComfyUI."""

    repo_id: str
    provenance: Mapping[str, Any]
    base_model: str | None
    revision: str
    comfyui: Sequence[str] = ()
    samples: Sequence[Sample] = ()
    has_report: bool = False

    @property
    def spec(self) -> FamilySpec | None:
        try:
            return get_family(str(self.provenance.get("family"))).spec
        except PhysPipelineError:
            return None

    @property
    def prompt(self) -> str:
        captions = [str(clip.get("caption")) for clip in self.provenance.get("clips", ()) if clip.get("caption")]
        return next(iter([*(sample.prompt for sample in self.samples), *captions]), _EXAMPLE_PROMPT)


def hub_base_model(provenance: Mapping[str, Any]) -> str | None:
    """The base model if it is a Hub id; a local folder's name or the embedded model's is none."""
    name = str(provenance.get("base_model") or "")
    return name if is_hub_source(name) and "@" not in name else None


def make_card(facts: CardFacts) -> str:
    """The text of README.md: YAML for the Hub, then what people want to know."""
    parts = [
        f"# {facts.repo_id.split('/')[1]}",
        "<Gallery />" if facts.samples else "",
        _about(facts),
        "## Use",
        *_usage(facts),
        "## Training",
        _training(facts.provenance),
        "## Results",
        *_results(facts),
        "## Limits",
        _limits(facts),
        "## Licence",
        _licence(facts),
    ]
    return f"---\n{front_matter(facts)}\n---\n\n" + "\n\n".join(part for part in parts if part) + "\n"


def front_matter(facts: CardFacts) -> str:
    """The YAML, written by huggingface_hub's own class."""
    from huggingface_hub import ModelCardData

    spec, licence = facts.spec, _licence_fields(facts)
    tag = "image-to-video" if "i2v" in (facts.base_model or "").lower() else "text-to-video"
    widget = []
    for sample in facts.samples[:_SHOWN_PROMPTS]:
        widget.append({"text": sample.prompt, "output": {"url": sample.file}})
        if sample.pair:
            text = f"{sample.prompt} (base model, then with the adapter)"
            widget.append({"text": text, "output": {"url": sample.pair}})
    data = ModelCardData(
        library_name="diffusers",
        pipeline_tag=tag,
        base_model=facts.base_model,
        base_model_relation="adapter" if facts.base_model else None,
        tags=["lora", "diffusers", "diffusers-training", "template:diffusion-lora", tag, *([spec.name] if spec else [])],
        widget=widget or None,
        license=licence["license"],
        license_name=licence.get("license_name"),
        license_link=licence.get("license_link"),
    )
    return str(data.to_yaml()).strip()


def check_card(text: str, files: Sequence[str]) -> dict[str, Any]:
    """The card's YAML. Raises AdapterError unless the Hub should take it: licence, base model, and videos among ``files``."""
    from huggingface_hub import ModelCard

    try:
        data: dict[str, Any] = ModelCard(text).data.to_dict()
    except Exception as error:  # YAML's errors, ValueError, TypeError
        raise AdapterError(f"the YAML at the top of README.md is not valid ({first_line(error)}): correct it") from error
    if not data:
        raise AdapterError("README.md has no YAML at the top: delete it, and one is made from provenance.json")
    wrong = [f"{key} is empty" for key, value in data.items() if value is None]
    licence = data.get("license")
    if not isinstance(licence, str) or not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", licence):
        wrong.append("license must be a short name such as apache-2.0")
    elif licence == "other" and not (data.get("license_name") and str(data.get("license_link", "")).startswith("https://")):
        wrong.append("license: other needs license_name and license_link")
    base = data.get("base_model")
    for name in [base] if isinstance(base, str) else base or []:
        if not is_hub_source(str(name)):
            wrong.append(f"base_model {name!r} is no Hub id")
    if data.get("base_model_relation", RELATIONS[0]) not in RELATIONS:
        wrong.append(f"base_model_relation must be one of {', '.join(RELATIONS)}")
    if not isinstance(data.get("tags", []), list) or not all(isinstance(tag, str) for tag in data.get("tags", [])):
        wrong.append("tags must be a list of words")
    for entry in data.get("widget") or []:
        output = entry.get("output") if isinstance(entry, dict) else None
        if not isinstance(output, dict) or output.get("url") not in files:
            wrong.append(f"the widget shows {output and output.get('url')}, which is not among the files")
    if wrong:
        raise AdapterError(f"README.md would be refused or broken on the Hub: {'; '.join(wrong)}")
    return data


def _licence_fields(facts: CardFacts) -> dict[str, str]:
    noted = facts.provenance.get("license")
    base = facts.base_model or facts.provenance.get("base_model")
    return dict(noted) if isinstance(noted, dict) else licence_of(str(facts.provenance.get("family")), base)


def _about(facts: CardFacts) -> str:
    about = facts.provenance
    base = (
        f"[{facts.base_model}](https://huggingface.co/{facts.base_model})" if facts.base_model else f"`{about.get('base_model')}`"
    )
    terms = ", ".join(f"{name} {weight:g}" for name, weight in sorted((about.get("loss_weights") or {}).items()))
    loss = f" beside the denoising loss ({terms})" if terms else ": the denoising loss alone"
    kind = "a spectral motion objective" if terms else "no motion objective"
    return (
        f"A LoRA adapter of rank {about.get('rank', 'unknown')} for {base} (revision {about.get('revision') or 'unknown'}), "
        f"trained by phys-pipeline {about.get('phys_pipeline', '')} with {kind}{loss}."
    )


def _usage(facts: CardFacts) -> list[str]:
    source = facts.repo_id if facts.revision == "main" else f"{facts.repo_id}@{facts.revision}"
    model = facts.base_model or ("tiny" if facts.provenance.get("base_model") == "tiny" else "FOLDER")
    parts = ["phys-pipeline, with the base model's video beside it:"]
    parts.append(
        _code(
            "sh",
            f"phys-pipeline generate {shlex.quote(' '.join(facts.prompt.split()))} --model {model} --adapter {source} --baseline",
        )
    )
    if facts.spec is not None and facts.base_model:
        parts += ["diffusers:", _code("python", _diffusers(facts, facts.spec))]
    expert = facts.provenance.get("expert")
    place = f", on the {expert}-noise model" if expert in ("high", "low") else ""
    for file in facts.comfyui:
        parts += [
            f"ComfyUI: download the file into its LoRA folder, then choose `{file}` in the node Load LoRA (Model only){place}:",
            _code("sh", f"hf download {facts.repo_id} {file} --revision {facts.revision} --local-dir ComfyUI/models/loras"),
        ]
    return parts


def _diffusers(facts: CardFacts, spec: FamilySpec) -> str:
    about = facts.provenance
    settings = {"num_frames": "frames", "height": "height", "width": "width"}
    sizes = "".join(f", {name}={about[key]}" for name, key in settings.items() if isinstance(about.get(key), int))
    steps = spec.generation.get("num_inference_steps")
    sizes += f", num_inference_steps={steps}" if steps else ""
    fps = about.get("fps") or spec.native_fps
    module = spec.modules.get("pipeline", "diffusers")
    loader, more = "pipe.load_lora_weights", ""
    if adapted_component(about) == "transformer_2":
        more = ", load_into_transformer_2=True"
    elif not hasattr(spec.load_class("pipeline"), "load_lora_weights"):  # HunyuanVideo-1.5's
        loader = "pipe.transformer.load_lora_adapter"
    return f"""import torch
from diffusers.utils import export_to_gif  # export_to_video makes an MP4, with imageio-ffmpeg
from {module} import {spec.pipeline_class}

device, dtype = ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.float32)
pipe = {spec.pipeline_class}.from_pretrained({_literal(facts.base_model)}, torch_dtype=dtype).to(device)
{loader}(
    {_literal(facts.repo_id)}, weight_name="{WEIGHTS_FILE}", revision={_literal(facts.revision)}, use_safetensors=True{more}
)
frames = pipe(prompt={_literal(facts.prompt)}{sizes}, output_type="pil").frames[0]
export_to_gif(frames, "video.gif", fps={fps:g})"""


def _literal(text: str | None) -> str:
    """A string as Python and JSON both read it. Escapes of letters beyond 16 bits would be two letters in Python."""
    return json.dumps(text, ensure_ascii=False)


def _training(about: Mapping[str, Any]) -> str:
    rows = {
        "steps": about.get("max_train_steps"),
        "clips": len(about["clips"]) if about.get("clips") else None,
        "fingerprint of the data": about.get("data"),
        "frames x height x width": " x ".join(str(about[k]) for k in ("frames", "height", "width"))
        if about.get("frames")
        else None,
        "frames per second": about.get("fps"),
        "rank, alpha": f"{about['rank']}, {about.get('lora_alpha', about['rank']):g}" if about.get("rank") else None,
        "learning rate": about.get("learning_rate"),
        "noise levels": about.get("sigma_law"),
        "objective": ", ".join(about["objective"]) if isinstance(about.get("objective"), list) else about.get("objective"),
        "motion loss": " ".join(str(about[k]) for k in ("motion_preset", "motion_form", "motion_space") if about.get(k)) or None,
        "seed": about.get("seed"),
        "versions": ", ".join(f"{name} {version}" for name, version in sorted((about.get("versions") or {}).items())) or None,
    }
    return _table(("setting", "value"), [(name, str(value)) for name, value in rows.items() if value is not None])


def _results(facts: CardFacts) -> list[str]:
    scores = facts.provenance.get("scores")
    if not isinstance(scores, dict) or not scores.get("measures"):
        return ["Nothing was measured: the run held out no clips and made no videos."]
    rows = []
    for measure in scores["measures"]:
        low, high = measure.get("low"), measure.get("high")
        interval = "one, no interval" if low is None else f"[{low:+.5f}, {high:+.5f}]"
        cells = (
            measure["name"],
            f"{measure['base']:.5f}",
            f"{measure['trained']:.5f}",
            f"{measure['difference']:+.5f}",
            interval,
        )
        rows.append((*cells, f"{measure['n']} {measure['unit']}"))
    header = ("measure", "base model", "with the adapter", "difference", "95 % interval", "n")
    text = (
        f"Base model and step {scores.get('step')} on the same clips, noise levels and noise. The interval is a 95 % t interval "
        "of the mean paired difference, from one training run: it says nothing about other seeds. A lower motion loss with less "
        "motion may only mean that the video freezes."
    )
    more = ["Tables and curves: [report.md](report.md)."] if facts.has_report else []
    return [text, _table(header, rows), *more]


def _limits(facts: CardFacts) -> str:
    base = facts.base_model or "its base model"
    return (
        f"It changes {base} and no other model; another revision weakens it. What the base model can't show, it can't either: "
        "the motion loss knows motions that are smooth in the plane, not contacts, collisions or depth. It was trained on the "
        "clips counted above at the size given there; longer or larger videos were not measured. It claims no physical accuracy."
    )


def _licence(facts: CardFacts) -> str:
    fields = _licence_fields(facts)
    if fields["license"] == "unknown":
        return "That of the base model, which is not known here: ask who published it before you pass this adapter on."
    if fields["license"] != "other":
        return f"{fields['license']}, as the base model."
    return f"That of the base model: [{fields['license_name']}]({fields['license_link']})."


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _code(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"


def samples_of(results: Mapping[str, Any], folder: Path) -> list[Sample]:
    """The videos that a validation's results.json lists; ``folder`` is where they lie in the repository."""
    found = []
    for video in results.get("videos") or ():
        pair = video.get("pair")
        found.append(
            Sample(str(video["prompt"]), (folder / video["file"]).as_posix(), (folder / pair).as_posix() if pair else None)
        )
    return found
