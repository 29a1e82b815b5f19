"""What is in a LoRA file, for people: ``phys-pipeline adapter inspect``, ``verify`` and ``extract-metadata``."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from phys_pipeline.adapters.files import count_not_finite, read_header, shown
from phys_pipeline.adapters.formats import describe_format, detect_format
from phys_pipeline.adapters.layers import adapter_at, adapter_names, transformers_of
from phys_pipeline.adapters.lora import load_adapter, unload_adapter
from phys_pipeline.adapters.readers import open_adapter
from phys_pipeline.errors import AdapterError
from phys_pipeline.families import LoadedModel

_SCHEMA = "phys-pipeline/adapter"
_SIDE = 64  # pixels of the probe video, or the least that the family takes


def inspect_adapter(path: Path) -> dict[str, Any]:
    """Format, size, ranks and alphas by kind of layer, base model, provenance, and how many numbers aren't finite.

    ``problem`` says why the file can't be applied; None if it can. Raises AdapterError if it isn't a safetensors file at all.
    """
    header = read_header(path)
    report: dict[str, Any] = {
        "schema": _SCHEMA,
        "version": 1,
        "file": path.name,
        "bytes": path.stat().st_size,
        "format": detect_format(header.tensors, header.metadata),
        "tensors": len(header.tensors),
        "dtypes": dict(sorted(Counter(entry.dtype for entry in header.tensors.values()).items())),
        "problem": None,
    }
    try:
        opened = open_adapter(path)
    except AdapterError as error:
        return report | {"problem": str(error)}
    report["not_finite"] = count_not_finite(path)
    layers = {} if report["not_finite"] else opened.read()
    if report["not_finite"]:
        report["problem"] = f"{report['not_finite']} numbers are NaN or infinite: get another copy"
    groups = Counter((re.sub(r"\.\d+\.", ".*.", module), layer.rank, round(layer.alpha, 6)) for module, layer in layers.items())
    report["layers"] = len(layers)
    report["groups"] = [
        {"layer": name, "count": count, "rank": rank, "alpha": alpha} for (name, rank, alpha), count in sorted(groups.items())
    ]
    report["skipped"] = list(opened.skipped)
    report["norm"] = sum(layer.squared_norm() for layer in layers.values()) ** 0.5
    report["base_model"] = _base_model(opened.provenance, dict(header.metadata))
    report["provenance"] = opened.provenance
    return report


def describe_adapter(report: dict[str, Any]) -> str:
    """An inspection as text of some lines."""
    dtypes = ", ".join(f"{count} {dtype}" for dtype, count in report["dtypes"].items())
    lines = [
        f"file        {report['file']}, {report['bytes'] / 1e6:.3g} MB",
        f"format      {describe_format(report['format'])}",
        f"tensors     {report['tensors']} ({dtypes})",
    ]
    if "layers" in report:
        lines += [
            f"base model  {report['base_model'] or 'not said'}",
            f"damage      {report['not_finite']} numbers not finite",
            f"layers      {report['layers']} changed, together by {report['norm']:.4g} (root of the summed squares)",
            *(f"  {g['layer']:<56} x{g['count']:<4} rank {g['rank']:<4} alpha {g['alpha']:g}" for g in report["groups"]),
        ]
        lines += (
            [f"left out    {len(report['skipped'])} tensors, such as {shown(report['skipped'][0])}"] if report["skipped"] else []
        )
        lines += [f"  {name}: {shown(str(value))}" for name, value in sorted(report["provenance"].items())]
    lines += [f"problem     {report['problem']}"] if report["problem"] else []
    return "\n".join(lines)


@torch.no_grad()
def verify_adapter(path: Path, model: LoadedModel) -> dict[str, Any]:
    """Apply a LoRA file to a base model and compare one prediction with and without it, from the same seeded noise.

    Raises AdapterError if it doesn't fit the model or the prediction doesn't change.
    """
    family, pipeline = model.family, model.pipeline
    text = family.encode_text(pipeline, ["a ball rolls to the right"], model.defaults)
    side = math.lcm(_SIDE, family.spec.size_multiple)
    shape = family.latent_shape(family.spec.time_stride + 1, side, side, pipeline.vae)
    x = torch.randn(1, *shape, generator=torch.Generator().manual_seed(0))
    x = x.to(pipeline.transformer.device, pipeline.transformer.dtype)
    inputs = family.inputs(x, torch.tensor([0.5]), text)
    info = load_adapter(model, path, name="verified")
    try:
        transformer = next(t for t in transformers_of(pipeline) if "verified" in adapter_names(t))
        with adapter_at(transformer, None):
            base = family.prediction(transformer(**inputs), x).float()
        change = (family.prediction(transformer(**inputs), x).float() - base).abs().mean().item()
    finally:
        unload_adapter(pipeline, "verified")
    if not change > 0:
        raise AdapterError(
            f"{path} is applied to {info.tensors // 2} layers and changes nothing: it was never trained, or is zero"
        )
    return {
        "layers": info.tensors // 2,
        "skipped": len(info.skipped),
        "mean_change": change,
        "mean_output": base.abs().mean().item(),
    }


def stored_metadata(path: Path) -> dict[str, Any]:
    """A file's metadata, with what is JSON inside it as objects."""
    found: dict[str, Any] = {}
    for name, text in sorted(read_header(path).metadata.items()):
        try:
            found[name] = json.loads(text) if text[:1] in "{[" else text
        except (ValueError, RecursionError):
            found[name] = text
    return found


def _base_model(provenance: dict[str, Any], metadata: dict[str, str]) -> str | None:
    """The base model that this or another trainer noted."""
    noted = [
        provenance.get("base_model"),
        *map(metadata.get, ("modelspec.architecture", "ss_sd_model_name", "ss_base_model_version")),
    ]
    return next((shown(str(name)) for name in noted if name), None)
