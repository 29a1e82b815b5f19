"""A family of one's own, as docs/families.md tells: a network, a pipeline and what is said of them, trained by the real trainer.

The model here is made up: a few layers that look at every latent place by itself. What matters is how little it takes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import DiffusionPipeline, FlowMatchEulerDiscreteScheduler
from diffusers.configuration_utils import ConfigMixin, register_to_config
from diffusers.loaders import PeftAdapterMixin
from diffusers.models.modeling_utils import ModelMixin
from diffusers.video_processor import VideoProcessor
from tiny import save_clips
from tiny_families import t5_encoder, t5_tokenizer
from torch import Tensor, nn

from phys_pipeline.adapters import load_adapter
from phys_pipeline.errors import ConfigError, ModelError
from phys_pipeline.families import FamilySpec, families_with, find_family, get_family, load_model, register_family
from phys_pipeline.families.diffusers_family import DiffusersFamily, rows
from phys_pipeline.models.frame_autoencoder import FrameAutoencoder
from phys_pipeline.noise_path import RectifiedFlow
from phys_pipeline.pipelines import generate_pair


class PlainBlock(nn.Module):
    """Residual feed-forward of one place."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:  # (B, N, W)
        return x + self.down(nn.functional.gelu(self.up(x)))


class PlainTransformer(ModelMixin, ConfigMixin, PeftAdapterMixin):
    """Predicts ``x0 - noise`` from noisy latents, a time in 0 (noise) to 1 (clean) and a text vector."""

    @register_to_config
    def __init__(self, in_channels: int = 4, width: int = 16, text_width: int = 16, num_layers: int = 2) -> None:
        super().__init__()
        self.proj_in, self.text = nn.Linear(in_channels, width), nn.Linear(text_width + 1, width)
        self.blocks = nn.ModuleList(PlainBlock(width) for _ in range(num_layers))
        self.proj_out = nn.Linear(width, in_channels)

    def forward(self, latents: Tensor, time: Tensor, text: Tensor) -> Tensor:  # (B, C, T, H, W), (B,), (B, D)
        about = self.text(torch.cat([text, time[:, None].to(text.dtype)], dim=1))
        x = self.proj_in(latents.movedim(1, -1).flatten(1, -2)) + about[:, None]
        for block in self.blocks:
            x = block(x)
        return self.proj_out(x).movedim(-1, 1).view_as(latents)


class PlainPipeline(DiffusionPipeline):
    """Text to video with ``PlainTransformer``: Euler steps from noise."""

    def __init__(self, text_encoder: Any, tokenizer: Any, transformer: Any, vae: Any, scheduler: Any) -> None:
        super().__init__()
        self.register_modules(
            text_encoder=text_encoder, tokenizer=tokenizer, transformer=transformer, vae=vae, scheduler=scheduler
        )

    @torch.no_grad()
    def __call__(
        self, text: Tensor, latents: Tensor, num_inference_steps: int, output_type: str, callback_on_step_end: Any,
        callback_on_step_end_tensor_inputs: Any,
    ) -> Any:  # fmt: skip
        self.scheduler.set_timesteps(sigmas=np.linspace(1, 1 / num_inference_steps, num_inference_steps), device=latents.device)
        for i, time in enumerate(self.scheduler.timesteps):
            velocity = -self.transformer(latents, 1 - time.expand(len(latents)) / 1000, text)
            latents = self.scheduler.step(velocity, time, latents, return_dict=False)[0]
            callback_on_step_end(self, i, time, {"latents": latents})
        decoded = self.vae.decode(latents / self.vae.config.scaling_factor, return_dict=False)[0]
        return SimpleNamespace(frames=VideoProcessor(8).postprocess_video(decoded, output_type=output_type))


SPEC = FamilySpec(
    name="plain",
    pipeline_class="PlainPipeline",
    transformer_class="PlainTransformer",
    vae_class="FrameAutoencoder",
    modules={"pipeline": __name__, "transformer": __name__, "vae": "phys_pipeline.models.frame_autoencoder"},
    hub_id="example/plain",
    lora_target_regex=r"blocks\.\d+\.(up|down)",
    time_stride=1,
    size_multiple=8,
    native_fps=8.0,
    default_shift=1.0,
    default_guidance=1.0,
    latent_channels=4,
    frame_rule="any number",
    prediction="x0 - noise",
    generation={"max_sequence_length": 16, "num_frames": 5, "height": 16, "width": 16, "fps": 8, "num_inference_steps": 2},
)


class PlainFamily(DiffusersFamily):
    """What the trainer and the comparison need to know."""

    def __init__(self) -> None:
        self.spec = SPEC
        self.path = RectifiedFlow(sign=-1, time="data", scale=1.0)

    def embed(self, pipeline: Any, captions: list[str], settings: Mapping[str, Any]) -> dict[str, Tensor]:
        """The mean over the words of the text encoder's features, (B, D)."""
        tokens = pipeline.tokenizer(captions, padding=True, truncation=True, max_length=settings["max_sequence_length"],
                                    return_tensors="pt").to(pipeline.text_encoder.device)  # fmt: skip
        kept = tokens.attention_mask[..., None]
        return {"text": (pipeline.text_encoder(**tokens).last_hidden_state * kept).sum(dim=1) / kept.sum(dim=1)}

    def inputs(
        self, x_t: Tensor, sigma: Tensor, conditioning: Mapping[str, Tensor], guidance: float | Tensor | None = None
    ) -> dict[str, Any]:
        tensors = {"time": self.path.timestep(sigma).to(x_t.device), "text": conditioning["text"].to(x_t.device, x_t.dtype)}
        return {"latents": x_t, **rows(len(x_t), tensors)}

    def sampling_arguments(
        self, conditioning: Mapping[str, Tensor], settings: Mapping[str, Any], noise: Tensor
    ) -> dict[str, Any]:
        return {**conditioning, "latents": noise, "num_inference_steps": settings["num_inference_steps"]}


@pytest.fixture
def registered(monkeypatch):
    """The table of families is as it was after the test."""
    import phys_pipeline.families as families

    monkeypatch.setattr(families, "_FAMILIES", dict(families._FAMILIES))
    register_family("plain", __name__, "PlainFamily")


@pytest.fixture
def model(tmp_path):
    torch.manual_seed(0)
    vae = FrameAutoencoder(latent_channels=4, widths=(4, 8, 8))
    PlainPipeline(t5_encoder(16), t5_tokenizer(), PlainTransformer(), vae, FlowMatchEulerDiscreteScheduler()).save_pretrained(
        tmp_path / "model"
    )
    return tmp_path / "model"


@pytest.mark.slow
@pytest.mark.usefixtures("registered", "fresh_accelerate_state")
def test_the_real_trainer_trains_it_and_a_pair_shows_it(model, tmp_path):
    from training.train_lora import main

    clips = save_clips(tmp_path / "clips", count=2, frames=5)
    command = [
        f"model={model}", f"data={clips}", f"output_dir={tmp_path / 'run'}", f"cache_dir={tmp_path / 'cache'}", "frames=5",
        "height=16", "width=16", "rank=2", "precision=fp32", "learning_rate=0.1", "max_train_steps=2", "lr_warmup_steps=0",
        "sigma_max=1.0", "trackers=[]",
    ]  # fmt: skip
    assert main(command) == 0
    assert json.loads((tmp_path / "run" / "provenance.json").read_text())["family"] == "plain"
    loaded = load_model(str(model))
    assert type(loaded.family) is PlainFamily and load_adapter(loaded, tmp_path / "run").delta > 0
    pair = generate_pair(loaded, "a ball", "physics")
    assert (pair.baseline.frames != pair.physics.frames).any()
    off = generate_pair(loaded, "a ball", "physics", weight=0)
    assert (off.baseline.frames == off.physics.frames).all()


def test_it_is_known_once_it_is_registered(model, monkeypatch):
    import phys_pipeline.families as families

    monkeypatch.setattr(families, "_FAMILIES", dict(families._FAMILIES))
    with pytest.raises(ModelError, match="PlainPipeline, which is no known model family"):
        find_family(model)
    register_family("plain", __name__, "PlainFamily")
    register_family("plain", __name__, "PlainFamily")  # once more is no harm
    assert type(find_family(model)) is PlainFamily and type(get_family("plain")) is PlainFamily
    assert [type(f) for f in families_with(transformer_class="PlainTransformer")] == [PlainFamily]
    with pytest.raises(ConfigError, match="there is a model family 'wan' already"):
        register_family("wan", __name__, "PlainFamily")
