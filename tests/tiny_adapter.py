"""A LoRA on the tiny random pipeline, and what its tests look at."""

import hashlib

import torch
from safetensors import safe_open
from tiny import GENERATION

from phys_pipeline.adapters import adapter_names, save_adapter
from phys_pipeline.families import get_family

RANK, ALPHA = 4, 10.0


def fill(parameters, seed=1):
    g = torch.Generator().manual_seed(seed)
    for parameter in parameters:
        parameter.data.add_(0.1 * torch.randn(parameter.shape, generator=g))


def save(pipeline, folder, **options):
    options = {"base_model": "hunyuanvideo-community/HunyuanVideo", "extra_metadata": {"steps": 3, "preset": "paper"}, **options}
    return save_adapter(pipeline.transformer, folder, family="hunyuan_video", **options)


@torch.no_grad()
def output(pipeline):
    family = get_family("hunyuan_video").bind(pipeline.transformer)
    text = family.encode_text(pipeline, ["a ball"], GENERATION)
    x = torch.randn(1, 4, 2, 3, 3, generator=torch.Generator().manual_seed(0))
    return pipeline.transformer.eval()(**family.inputs(x, torch.tensor([0.5]), text))[0]


def state(transformer):
    """Everything an adapter could change, without copying weights."""
    return (
        [(n, p.data_ptr(), p.requires_grad) for n, p in transformer.named_parameters()],
        [(n, type(m)) for n, m in transformer.named_modules()],
        adapter_names(transformer),
    )


def sha(folder):
    """Checksums of an adapter folder's files; the copy for ComfyUI is named after the folder."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {
        str(path.relative_to(folder)).replace(f"/{folder.name}.", "/NAME."): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def stored_metadata(file):
    with safe_open(file, framework="pt") as opened:
        return dict(opened.metadata())
