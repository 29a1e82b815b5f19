"""Open-Sora 2.0 in the real training script."""

import pytest
import torch
from tiny import save_clips
from tiny_open_sora_2 import save_tiny

from phys_pipeline.adapters import load_adapter, unload_adapter
from phys_pipeline.adapters.layers import linear_layers
from phys_pipeline.adapters.lora import find_adapter
from phys_pipeline.adapters.original import to_original
from phys_pipeline.adapters.readers import open_adapter
from phys_pipeline.families import load_model
from phys_pipeline.models.open_sora_2_conversion import transformer_key_map
from phys_pipeline.pipelines import generate_pair
from training.train_lora import main


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_accelerate_state")
def test_an_adapter_s_whole_way(tmp_path):
    """The real script, its adapter in a fresh pipeline with the same output to the bit, and a pair of videos."""
    folder = save_tiny(tmp_path / "model")
    clips = save_clips(tmp_path / "clips", count=2, frames=5)
    run = tmp_path / "run"
    assert main([
        f"model={folder}", f"data={clips}", f"cache_dir={tmp_path / 'cache'}", f"output_dir={run}", "frames=5", "height=16",
        "width=16", "fps=8", "rank=2", "max_train_steps=2", "train_batch_size=2", "learning_rate=0.1", "sigma_max=1.0",
        "lr_warmup_steps=0", "precision=fp32", "gradient_checkpointing=true",
    ]) == 0  # fmt: skip
    assert (run / "pytorch_lora_weights.safetensors").is_file() and not (run / "comfyui").exists()

    outputs = []
    for _ in range(2):
        model = load_model(str(folder))
        load_adapter(model, run)
        text = model.family.encode_text(model, ["clip number 0"], {"fps": 8})
        x = torch.randn(1, 4, 2, 2, 2, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            outputs.append(
                model.family.prediction(model.pipeline.transformer(**model.family.inputs(x, torch.tensor([0.5]), text)), x)
            )
    assert torch.equal(*outputs)
    unload_adapter(model, "physics")
    pair = generate_pair(model, "a ball", run, seed=1)
    assert (pair.baseline.frames != pair.physics.frames).any() and pair.baseline.frames.shape[0] == 5
    same = generate_pair(model, "a ball", run, seed=1, weight=0.0)
    assert (same.baseline.frames == same.physics.frames).all() and (same.baseline.frames == pair.baseline.frames).all()

    widths = {name: layer.out_features for name, layer in linear_layers(model.pipeline.transformer).items()}
    read = open_adapter(find_adapter(run)).read()
    original = to_original(read, transformer_key_map(head_dim=16, latent_channels=4), widths)
    assert len(read) == 11 and original.keys() == {
        *(f"double_blocks.0.{side}_attn.{layer}" for side in ("img", "txt") for layer in ("q_proj", "k_proj", "v_proj", "proj")),
        *(f"single_blocks.0.{layer}" for layer in ("q_proj", "k_proj", "v_mlp")),
    }
