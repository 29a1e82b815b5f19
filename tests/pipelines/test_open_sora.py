import golden_data
import numpy as np
import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from PIL import Image
from tiny_open_sora import tiny_pipeline
from torch import nn

from phys_pipeline.errors import ConfigError
from phys_pipeline.models.open_sora_sizes import evenly_spaced_sigmas, timestep_shift
from phys_pipeline.noise_path import shift_sigma
from phys_pipeline.pipelines.open_sora import Given, OpenSoraPipeline

SHORT = {"height": 16, "width": 24, "num_frames": 17, "num_inference_steps": 2, "guidance_scale": 4.0, "output_type": "pt"}


@pytest.fixture(scope="module")
def pipeline():
    return tiny_pipeline()


class Field(nn.Module):
    """Stands in the transformer's place: a velocity that is linear in x and moves away from the null caption."""

    def __init__(self):
        super().__init__()
        golden = golden_data.group("rflow_v12", "field_sampling.")
        self.matrix, self.offset, self.masks, self.config = golden["A"], golden["b"], [], {"in_channels": 4}
        self.null_caption = torch.zeros(2, 3)

    def forward(self, hidden_states, timestep, frame_mask, encoder_hidden_states, **_):
        assert len(hidden_states) == len(timestep) == len(encoder_hidden_states)
        sign = torch.where(encoder_hidden_states[:, 0, 0] > 0, 1.0, -1.0).view(-1, 1, 1, 1, 1)
        self.masks.append(frame_mask)
        velocity = torch.einsum("oc,bcthw->bothw", self.matrix, hidden_states)
        velocity = velocity + sign * self.offset.view(1, -1, 1, 1, 1) * timestep.view(-1, 1, 1, 1, 1) / 1000
        return (torch.cat([velocity, torch.full_like(velocity, torch.nan)], dim=1),)  # the second half is never read


def sample_field(sigmas, shift, given=None, noise=None):
    field = Field()
    pipe = OpenSoraPipeline(None, None, None, field, FlowMatchEulerDiscreteScheduler())
    pipe.set_progress_bar_config(disable=True)
    if noise is not None:
        pipe._noise_of_step = lambda step, *_: noise[step]
    z = golden_data.group("rflow_v12", "field_sampling.")["z"]
    text, mask = torch.ones(2, 2, 3), torch.ones(2, 2)
    result = pipe.denoise(
        z, text, mask, height=240, width=426, fps=24, sigmas=sigmas, shift=shift, guidance_scale=4.0, given=given
    )
    return result, pipe.scheduler.timesteps, field.masks


def assert_near(values, expected, tolerance=1e-4):
    assert (values - expected).abs().max() < tolerance * expected.abs().max()


@pytest.mark.parametrize("case", ["plain", "transform", "discrete"])
def test_a_linear_field_is_followed_as_by_the_reference(case):
    golden = golden_data.group("rflow_v12", f"field_sampling.{case}.")
    sigmas = evenly_spaced_sigmas(7)
    if case == "discrete":
        sigmas = [round(1000 * s) / 1000 for s in sigmas]
    result, timesteps, _ = sample_field(sigmas, timestep_shift(51, 240, 426) if case == "transform" else 1.0)
    torch.testing.assert_close(timesteps, golden["timesteps"], atol=1e-3, rtol=1e-5)
    assert_near(result, golden["result"])


def test_frames_that_are_kept_or_changed_late():
    golden = golden_data.group("rflow_v12", "field_sampling.masked.")
    z = golden_data.group("rflow_v12", "field_sampling.")["z"]
    given = Given(z, golden["mask"])
    result, timesteps, masks = sample_field(evenly_spaced_sigmas(7), timestep_shift(51, 240, 426), given, golden["noise"])
    torch.testing.assert_close(timesteps, golden["timesteps"], atol=1e-3, rtol=1e-5)
    assert torch.equal(torch.stack(masks), golden["x_mask"])
    assert_near(result, golden["result"])
    kept = golden["mask"] == 0
    assert kept.any() and torch.equal(result.transpose(1, 2)[kept], z.transpose(1, 2)[kept])


@pytest.mark.parametrize("shift", [0.3, 0.7, 1.7, 7.3, 12.9])
def test_frames_that_are_all_made_anew_are_as_without_given_ones(shift):
    z = golden_data.group("rflow_v12", "field_sampling.")["z"]
    given = Given(torch.zeros_like(z), torch.ones(2, 5))
    result, _, masks = sample_field(evenly_spaced_sigmas(3), shift, given)
    assert all(bool(mask.all()) for mask in masks) and torch.equal(result, sample_field(evenly_spaced_sigmas(3), shift)[0])


def test_the_transformer_is_sampled_as_by_the_reference(pipeline):
    golden = golden_data.group("rflow_v12", "model_sampling.")
    given = golden_data.group("stdit3_tiny", "inputs.basic.")
    fps = pipeline.transformer.forward

    def each_its_own(**arguments):  # the two samples of this case have different frame rates
        return fps(**{**arguments, "fps": given["fps"]})

    pipeline.transformer.forward = each_its_own
    try:
        result = pipeline.denoise(
            golden["z"], given["y"][:, 0], given["mask"], height=48, width=80, fps=0,
            sigmas=evenly_spaced_sigmas(4), shift=timestep_shift(17, 48, 80), guidance_scale=7.0,
        )  # fmt: skip
    finally:
        del pipeline.transformer.forward
    assert_near(result, golden["result"])


def test_the_scheduler_s_own_grid_would_be_another_one():
    scheduler = FlowMatchEulerDiscreteScheduler(shift=1.0)
    scheduler.set_timesteps(7)
    assert abs(float(scheduler.timesteps[1]) - 1000 * evenly_spaced_sigmas(7)[1]) > 20


def test_videos_of_every_output_type_and_the_same_seed_twice(pipeline):
    def make(**more):
        return pipeline(["a red ball", "a cat"], **{**SHORT, "generator": torch.Generator().manual_seed(3), **more})

    pt = make().frames
    assert pt.shape == (2, 17, 3, 16, 24) and torch.isfinite(pt).all() and 0 <= pt.min() <= pt.max() <= 1
    assert torch.equal(make().frames, pt) and not torch.equal(pt[0], pt[1])
    array, latents = make(output_type="np").frames, make(output_type="latent", return_dict=False)[0]
    np.testing.assert_allclose(array, pt.permute(0, 1, 3, 4, 2).numpy(), atol=1e-6)
    assert latents.shape == (2, 4, 5, 2, 3) and latents.dtype == torch.float32
    pictures = make(output_type="pil", num_videos_per_prompt=2).frames
    assert len(pictures) == 4 and len(pictures[0]) == 17 and pictures[0][0].size == (24, 16)


def spied(pipeline, monkeypatch):
    calls, forward = [], pipeline.transformer.forward

    def watched(**arguments):
        calls.append(arguments)
        return forward(**arguments)

    monkeypatch.setattr(pipeline.transformer, "forward", watched)
    return calls


def test_no_text_is_the_learned_caption_under_the_prompt_s_mask(pipeline, monkeypatch):
    calls = spied(pipeline, monkeypatch)
    pipeline("a red ball", aesthetic_score=None, **SHORT)
    text, mask = calls[0]["encoder_hidden_states"], calls[0]["encoder_attention_mask"]
    assert torch.equal(text[1], pipeline.transformer.null_caption)
    assert mask.shape == (1, 10) and 1 < mask.sum() < 10  # of the prompt, and read for both rows
    assert calls[0]["fps"].item() == 24.0 and (calls[0]["height"], calls[0]["width"]) == (16, 24)
    assert len(calls) == 2 and calls[0]["frame_mask"] is None
    half = shift_sigma(torch.full((2,), 0.5), timestep_shift(17, 16, 24))  # of the levels 1 and 1/2, shifted once
    torch.testing.assert_close(calls[1]["timestep"], 1000 * half)
    calls.clear()
    pipeline("a red ball", **{**SHORT, "guidance_scale": 1.0})
    assert len(calls[0]["hidden_states"]) == 1


def test_a_picture_is_told_120_frames_per_second(pipeline, monkeypatch):
    calls = spied(pipeline, monkeypatch)
    frames = pipeline("a red ball", **{**SHORT, "num_frames": 1}).frames
    assert frames.shape == (1, 1, 3, 16, 24) and calls[0]["fps"].item() == 120.0


def test_scores_are_written_behind_the_prompt(pipeline, monkeypatch):
    seen = []
    name = "phys_pipeline.pipelines.open_sora.encode_t5"
    monkeypatch.setattr(name, lambda _, texts, length, clean: seen.append((texts, length, clean)))
    pipeline.encode_prompt("A ball")
    pipeline.encode_prompt(["a", "b"], aesthetic_score=None, motion_score=5, camera_motion="pan left", clean_caption=False)
    assert seen == [
        (["A ball aesthetic score: 6.5."], 10, True),
        (["a motion score: 5.0. camera motion: pan left.", "b motion score: 5.0. camera motion: pan left."], 10, False),
    ]


def test_a_video_that_starts_with_a_picture(pipeline, monkeypatch):
    calls = spied(pipeline, monkeypatch)
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 255, (16, 24, 3), dtype=np.uint8))
    latents = pipeline("a red ball", image=picture, **{**SHORT, "output_type": "latent"}).frames
    pixels = torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1)[None, :, None] / 127.5 - 1
    with torch.no_grad():
        first = pipeline.vae.normalise(pipeline.vae.encode(pixels).latent_dist.mode())
    torch.testing.assert_close(latents[:, :, :1], first, atol=1e-5, rtol=1e-4)
    assert calls[0]["frame_mask"].tolist() == [[False, True, True, True, True]] * 2


def test_a_callback_sees_and_changes_the_latents_and_can_stop(pipeline):
    seen = []

    def step_ended(pipe, step, t, tensors):
        seen.append((step, float(t), sorted(tensors)))
        pipe._interrupt = True
        return {"latents": torch.zeros_like(tensors["latents"])}

    result = pipeline(
        "a ball", **{**SHORT, "output_type": "latent"}, callback_on_step_end=step_ended,
        callback_on_step_end_tensor_inputs=["latents", "prompt_embeds"],
    ).frames  # fmt: skip
    assert [s[0] for s in seen] == [0] and abs(seen[0][1] - 1000) < 1e-3 and seen[0][2] == ["latents", "prompt_embeds"]
    assert result.abs().max() == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_frames": 9}, "9 frames: .* no noise schedule for 2 to 16"),
        ({"height": 4}, "at least 8"),
        ({"prompt": None}, "either prompt"),
        ({"prompt_embeds": torch.zeros(1, 10, 48)}, "either prompt"),
        ({"latents": torch.zeros(1, 4, 4, 2, 3)}, r"latents are \(1, 4, 4, 2, 3\), these settings need \(1, 4, 5, 2, 3\)"),
        ({"given_latents": torch.zeros(1, 4, 5, 2, 3)}, "go together"),
        ({"given_latents": torch.zeros(1, 4, 5, 2, 2), "frame_strength": torch.ones(1, 5)}, "must have the shapes"),
        ({"resolution": "9p", "height": None}, "unknown resolution"),
        ({"callback_on_step_end_tensor_inputs": ["vae"]}, "no callback tensor 'vae'"),
        (
            {"prompt": None, "prompt_embeds": torch.zeros(1, 7, 48), "prompt_attention_mask": torch.ones(1, 7)},
            "7 tokens: this model takes 10",
        ),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(pipeline, arguments, message):
    with pytest.raises(ConfigError, match=message):
        pipeline(**{"prompt": "a ball", **SHORT, **arguments})


def test_saved_and_loaded_it_makes_the_same_video(pipeline, tmp_path):
    pipeline.save_pretrained(tmp_path)
    again = OpenSoraPipeline.from_pretrained(tmp_path)
    again.set_progress_bar_config(disable=True)
    one, two = (p("a ball", generator=torch.Generator().manual_seed(0), **SHORT).frames for p in (pipeline, again))
    assert torch.equal(one, two)
    low = OpenSoraPipeline.from_pretrained(tmp_path, torch_dtype=torch.bfloat16)
    low.set_progress_bar_config(disable=True)
    short = {**SHORT, "output_type": "latent"}
    exact, rough = (p("a ball", generator=torch.Generator().manual_seed(0), **short).frames for p in (pipeline, low))
    assert (exact - rough).norm() / exact.norm() < 0.02


def test_lora_files_load_weigh_fuse_and_unload(pipeline, tmp_path):
    from peft import LoraConfig, get_peft_model_state_dict

    pipe = tiny_pipeline()

    def video():
        return pipe("a ball", generator=torch.Generator().manual_seed(0), **{**SHORT, "output_type": "latent"}).frames

    plain = video()
    targets = r"(temporal_)?transformer_blocks\.\d+\.attn[12]\.(to_q|to_k|to_v|to_out\.0)"
    pipe.transformer.add_adapter(LoraConfig(r=2, lora_alpha=4, target_modules=targets, init_lora_weights=False), "mine")
    pipe.set_adapters(["mine"], [1.0])
    adapted = video()
    OpenSoraPipeline.save_lora_weights(
        tmp_path,
        transformer_lora_layers=get_peft_model_state_dict(pipe.transformer, adapter_name="mine"),
        transformer_lora_adapter_metadata=pipe.transformer.peft_config["mine"].to_dict(),
    )
    pipe.delete_adapters("mine")
    assert not torch.allclose(adapted, plain, atol=1e-3)

    pipe.load_lora_weights(tmp_path, adapter_name="again")
    assert torch.equal(video(), adapted) and pipe.get_active_adapters() == ["again"]
    pipe.set_adapters(["again"], [0.0])
    torch.testing.assert_close(video(), plain, atol=1e-5, rtol=1e-5)
    pipe.set_adapters(["again"], [1.0])
    pipe.fuse_lora()
    torch.testing.assert_close(video(), adapted, atol=1e-4, rtol=1e-4)
    pipe.unfuse_lora()
    pipe.unload_lora_weights()
    torch.testing.assert_close(video(), plain, atol=1e-4, rtol=1e-4)
