"""Open-Sora 2.0's pipeline: the reference's sampling loops, its three branches, and what a diffusers pipeline should do."""

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_open_sora_2 import golden, golden_transformer, t5_tokenizer, tiny_pipeline

from phys_pipeline.errors import ConfigError
from phys_pipeline.models.open_sora_2 import pack
from phys_pipeline.pipelines.open_sora_2 import OpenSora2Pipeline
from phys_pipeline.pipelines.open_sora_2_guidance import Guidance, combine

SMALL = {"height": 16, "width": 16, "num_frames": 5, "num_inference_steps": 2, "max_sequence_length": 24, "output_type": "pt"}


@pytest.fixture(scope="module")
def tensors():
    return golden()


@pytest.fixture(scope="module")
def golden_pipeline(tensors):
    return tiny_pipeline(transformer=golden_transformer(tensors))


@pytest.fixture(scope="module")
def pipeline():
    return tiny_pipeline()


def sampled(pipeline, tensors, **changes):
    """The golden loop's last latents before given frames are written back, the output, and the transformer's calls per step.

    The golden loops have another text in the third branch than in the second, which a pipeline has no use for: it is put in here.
    """
    given = {name.removeprefix("inputs.denoise."): value for name, value in tensors.items() if "inputs.denoise." in name}
    kept, calls = {}, []

    def third_text(module, positional, keywords):
        calls.append(len(kept))
        if calls.count(len(kept)) == 3:
            assert not keywords["hidden_states"][..., 16:].any()
            keywords = {**keywords, "encoder_hidden_states": given["txt"][2:], "pooled_projections": given["y_vec"][2:]}
        return positional, keywords

    def keep(pipe, step, timestep, named):
        kept[step] = named["latents"].clone()
        return {}

    arguments = {
        "prompt_embeds": given["txt"][:1], "negative_prompt_embeds": given["txt"][1:2],
        "pooled_prompt_embeds": given["y_vec"][:1], "negative_pooled_prompt_embeds": given["y_vec"][1:2],
        "latents": given["latents"], "given_latents": given["masked_ref"], "given_mask": given["masks"],
        "height": 48, "width": 80, "num_frames": 9, "num_inference_steps": 12, "output_type": "latent",
        "callback_on_step_end": keep,
    }  # fmt: skip
    hook = pipeline.transformer.register_forward_pre_hook(third_text, with_kwargs=True)
    output = pipeline(**{**arguments, **changes}).frames
    hook.remove()
    return pack(kept[11]), output, [calls.count(step) for step in range(12)]


def difference(value, expected):
    return ((value - expected).abs().max() / expected.abs().max()).item()


def test_the_reference_s_loop_with_the_first_frame_given(golden_pipeline, tensors):
    latents, output, calls = sampled(golden_pipeline, tensors)
    assert difference(latents, tensors["outputs.denoise.i2v_head"]) < 1e-4
    assert calls == [3] * 11 + [1]  # an odd step from the tenth on has no guidance
    mask, given = tensors["inputs.denoise.masks"], tensors["inputs.denoise.masked_ref"]
    assert mask[:, :, 0].all() and not mask[:, :, 1:].any()
    assert torch.equal(output[:, :, 0], given[:, :, 0]) and torch.equal(pack(output)[:, 15:], latents[:, 15:])


def test_the_reference_s_loop_with_nothing_given(golden_pipeline, tensors):
    nothing = {"given_latents": torch.zeros(1, 4, 3, 6, 10), "given_mask": torch.zeros(1, 1, 3, 6, 10), "temporal_scaling": False}
    latents, output, calls = sampled(golden_pipeline, tensors, **nothing)
    assert difference(latents, tensors["outputs.denoise.t2v"]) < 1e-4
    assert calls == [3] * 11 + [1] and torch.equal(pack(output), latents)


def test_from_text_two_branches_are_equal_and_one_is_left_out(golden_pipeline, tensors):
    """With one negative text, as every user has, three branches with nothing given are two."""
    negative = {"negative_prompt_embeds": tensors["inputs.denoise.txt"][2:], "temporal_scaling": False}
    negative["negative_pooled_prompt_embeds"] = tensors["inputs.denoise.y_vec"][2:]
    nothing = {"given_latents": torch.zeros(1, 4, 3, 6, 10), "given_mask": torch.zeros(1, 1, 3, 6, 10)}
    three, _, calls = sampled(golden_pipeline, tensors, **nothing, **negative)
    assert calls == [3] * 11 + [1]
    two, _, calls = sampled(golden_pipeline, tensors, given_latents=None, given_mask=None, **negative)
    assert calls == [2] * 11 + [1] and difference(two, three) < 1e-4


@pytest.mark.parametrize(
    "changes",
    [{"temporal_scaling": False}, {"image_oscillation": False}, {"text_oscillation": False}, {"shift": 1.0},
     {"image_guidance_scale": 2.0}, {"guidance_scale": 5.0}],
)  # fmt: skip
def test_every_habit_of_the_guidance_counts(golden_pipeline, tensors, changes):
    latents, _, _ = sampled(golden_pipeline, tensors, **changes)
    assert difference(latents, tensors["outputs.denoise.i2v_head"]) > 1e-3


def test_the_schedule_is_the_reference_s(golden_pipeline, tensors):
    sampled(golden_pipeline, tensors, guidance_scale=1.0, image_guidance_scale=1.0)
    expected = tensors["inputs.denoise.timesteps"].float()
    torch.testing.assert_close(golden_pipeline.scheduler.sigmas, expected, atol=3e-7, rtol=0)


def test_the_guidance_s_numbers():
    guidance = Guidance(text=7.5, image=3.0)
    text, image = guidance.at(0, 50, 3, given=True)
    assert text == 7.5 and torch.allclose(image, torch.tensor([1.0, 2.0, 3.0]))
    assert torch.allclose(Guidance(image=3.0).at(24, 48, 3, given=True)[1], torch.tensor([1.0, 1.5, 2.0]))
    assert guidance.at(9, 50, 3, given=True)[0] == 7.5 and guidance.at(11, 50, 3, given=True) == (1.0, 1.0)
    assert guidance.at(10, 50, 3, given=False) == (7.5, 1.0)
    assert Guidance(temporal_scaling=False).at(0, 50, 3, given=True) == (7.5, 3.0)
    assert Guidance(image_oscillation=False, temporal_scaling=False).at(11, 50, 3, given=True) == (1.0, 3.0)


def test_the_branches_add_up():
    prompt, negative, ungiven = torch.randn(3, 2, 4, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(combine(prompt, negative, ungiven, 1.0, 1.0), prompt, atol=1e-6)
    per_frame = combine(prompt, negative, ungiven, 7.5, torch.tensor([1.0, 2.0, 3.0]))
    for frame, image in enumerate((1.0, 2.0, 3.0)):
        one = combine(prompt, negative, ungiven, 7.5, image)
        assert torch.allclose(per_frame[:, :, frame], one[:, :, frame], atol=1e-5)


def test_a_video_from_a_prompt(pipeline):
    first = pipeline("a ball", generator=torch.Generator().manual_seed(1), **SMALL).frames
    again = pipeline(["a ball"], generator=torch.Generator().manual_seed(1), **SMALL).frames
    other = pipeline("a cat", generator=torch.Generator().manual_seed(1), **SMALL).frames
    assert first.shape == (1, 5, 3, 16, 16) and first.min() >= 0 and first.max() <= 1
    assert torch.equal(first, again) and not torch.equal(first, other)
    pictures = pipeline("a ball", **{**SMALL, "output_type": "pil"}, return_dict=False)[0]
    assert isinstance(pictures[0][0], Image.Image) and len(pictures[0]) == 5
    arrays = pipeline(["a ball", "a cat"], num_videos_per_prompt=2, **{**SMALL, "output_type": "np"}).frames
    assert isinstance(arrays, np.ndarray) and arrays.shape == (4, 5, 16, 16, 3)
    embeds, pooled = pipeline.encode_prompt(["a ball", "a cat"])
    text = {"prompt_embeds": embeds, "pooled_prompt_embeds": pooled, "num_videos_per_prompt": 2}
    assert len(pipeline(**text, **SMALL).frames) == 4


def test_pictures_at_both_ends_are_kept(pipeline):
    red, blue = (Image.new("RGB", (40, 30), colour) for colour in ("red", "blue"))
    options = {**SMALL, "num_frames": 9, "output_type": "latent"}
    both = pipeline("a ball", image=red, last_image=blue, generator=torch.Generator().manual_seed(1), **options).frames
    one = pipeline("a ball", image=red, generator=torch.Generator().manual_seed(1), **options).frames
    alone = pipeline.video_processor.preprocess(red, height=16, width=16)[:, :, None]
    expected = pipeline.vae.encode(alone).latent_dist.mode()[:, :, 0] * pipeline.vae.config.scaling_factor
    assert torch.allclose(both[:, :, 0], expected) and torch.allclose(one[:, :, 0], expected)
    assert not torch.allclose(both[:, :, -1], one[:, :, -1]) and not torch.allclose(both[:, :, -1], expected)
    with pytest.raises(ConfigError, match="at least 5 frames"):
        pipeline("a ball", image=red, last_image=blue, **{**options, "num_frames": 1})
    with pytest.raises(ConfigError, match="pass one of the two"):
        pipeline("a ball", image=red, given_latents=both, given_mask=both[:, :1], **options)


def test_without_guidance_the_negative_prompt_is_not_read(pipeline):
    plain = [pipeline("a ball", negative, guidance_scale=1, generator=torch.Generator().manual_seed(1), **SMALL).frames
             for negative in ("", "a very different thing")]  # fmt: skip
    guided = [pipeline("a ball", negative, generator=torch.Generator().manual_seed(1), **SMALL).frames
              for negative in ("", "a very different thing")]  # fmt: skip
    assert torch.equal(*plain) and not torch.equal(*guided)


def test_callbacks_change_and_stop_the_run(pipeline):
    steps = []

    def stop(pipe, step, timestep, named):
        assert named.keys() == {"latents", "prompt_embeds"} and named["latents"].shape == (1, 4, 2, 2, 2)
        steps.append((step, float(timestep)))
        pipe._interrupt = True
        return {"latents": torch.zeros_like(named["latents"])}

    options = {**SMALL, "output_type": "latent", "callback_on_step_end_tensor_inputs": ["latents", "prompt_embeds"]}
    output = pipeline("a ball", callback_on_step_end=stop, **options).frames
    assert steps == [(0, 1000.0)] and not output.any() and pipeline.interrupt and pipeline.num_timesteps == 2
    assert pipeline.guidance_scale == 7.5 and pipeline.image_guidance_scale == 3.0
    again = pipeline("a ball", callback_on_step_end=lambda *_: None, **options).frames  # a callback need not change anything
    assert torch.isfinite(again).all() and not pipeline.interrupt


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_frames": 6}, "use 5 or 9"), ({"num_frames": 133}, "1 to 129"), ({"height": 24}, "multiples of 16"),
        ({"width": 0}, "multiples of 16"), ({"prompt": None}, "either prompt"),
        ({"prompt_embeds": torch.zeros(1)}, "either prompt"),
        ({"latents": torch.zeros(1, 4, 2, 2, 4)}, r"these settings need \(1, 4, 2, 2, 2\)"),
        ({"callback_on_step_end_tensor_inputs": ["noise"]}, "no callback tensor 'noise'"),
        ({"negative_prompt": ["a", "b"]}, "2 negative prompts for 1"),
        ({"negative_prompt_embeds": torch.zeros(1, 24, 16)}, "together"),
        ({"negative_prompt_embeds": torch.zeros(2, 24, 16), "negative_pooled_prompt_embeds": torch.zeros(2, 8)}, "2 rows for 1"),
    ],
)  # fmt: skip
def test_what_can_t_be_made_is_said_at_once(pipeline, changes, message):
    with pytest.raises(ConfigError, match=message):
        pipeline(**{"prompt": "a ball", **SMALL, **changes})


def test_padding_is_read_as_text_and_long_empty_and_foreign_prompts_pass(pipeline):
    """All embeddings of the padded prompt are used: 512 of them, unmasked."""
    tokenizer = t5_tokenizer()
    long = "a small red ball rolls over the wooden floor " * 80  # 720 tokens and more
    prompts = ["", long, "一只红色的球 滚动", "a ball"]
    assert len(tokenizer(long).input_ids) > 512
    seen = []
    hook = pipeline.text_encoder.register_forward_pre_hook(lambda m, a, k: seen.append((a, k)), with_kwargs=True)
    embeds, pooled = pipeline.encode_prompt(prompts)
    hook.remove()
    (ids,), keywords = seen[0]
    assert keywords["attention_mask"] is None and ids.shape == (4, 512)
    assert (ids[1] != tokenizer.pad_token_id).all() and ids[1, -1] == tokenizer.eos_token_id
    assert ids[0, 0] == tokenizer.eos_token_id and (ids[0, 1:] == tokenizer.pad_token_id).all()
    assert (ids[2] == tokenizer.unk_token_id).any()  # T5's vocabulary has no Chinese: the prompt can't be told apart
    assert embeds.shape == (4, 512, 16) and pooled.shape == (4, 8) and torch.isfinite(embeds).all()
    assert embeds[3, 100:].abs().sum() > 0


def test_the_prompt_is_told_rate_and_motion(pipeline):
    seen = []
    encode = pipeline.encode_prompt
    pipeline.encode_prompt = lambda prompts, *more: (seen.append(prompts), encode(prompts, *more))[1]
    try:
        pipeline("A cat.", motion_score=6, fps=16, **SMALL)
    finally:
        del pipeline.encode_prompt
    assert seen == [["A cat. 16 FPS. 6 motion score."], [""]]


def test_saved_and_loaded_it_gives_the_same_video(pipeline, tmp_path):
    pipeline.save_pretrained(tmp_path / "model")
    loaded = OpenSora2Pipeline.from_pretrained(tmp_path / "model")
    loaded.set_progress_bar_config(disable=True)
    videos = [p("a ball", generator=torch.Generator().manual_seed(1), **SMALL).frames for p in (pipeline, loaded)]
    assert torch.allclose(*videos, atol=1e-5)  # where weights lie in memory changes the last bits


def test_the_golden_pipeline_in_bfloat16(tensors, golden_pipeline):
    """One step without guidance, where diffusers tells both models the same time: t = 1."""
    low = tiny_pipeline(transformer=golden_transformer(tensors).to(torch.bfloat16))
    options = {"guidance_scale": 1.0, "image_guidance_scale": 1.0, "num_inference_steps": 1, "callback_on_step_end": None}
    found = []
    for pipe in (golden_pipeline, low):
        given = {name.removeprefix("inputs.denoise."): value for name, value in tensors.items() if "inputs.denoise." in name}
        found.append(pipe(
            prompt_embeds=given["txt"][:1], pooled_prompt_embeds=given["y_vec"][:1], latents=given["latents"], height=48,
            width=80, num_frames=9, output_type="latent", **options,
        ).frames)  # fmt: skip
    exact, rounded = found
    assert rounded.dtype == torch.float32 and 0 < (rounded - exact).norm() / exact.norm() < 0.02


def test_adapters_load_weigh_fuse_and_leave(pipeline, tmp_path):
    from peft import get_peft_model_state_dict

    from phys_pipeline.adapters import inject_lora

    def video(**options):
        return pipeline("a ball", generator=torch.Generator().manual_seed(1), **SMALL, **options).frames

    before = video()
    trained = tiny_pipeline().transformer
    for i, parameter in enumerate(inject_lora(trained, rank=2)):
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i))
    pipeline.save_lora_weights(tmp_path, transformer_lora_layers=get_peft_model_state_dict(trained))
    pipeline.load_lora_weights(tmp_path, adapter_name="one")
    full = video()
    assert (full - before).abs().max() > 1e-3
    pipeline.set_adapters(["one"], [0.0])
    assert torch.equal(video(), before)
    pipeline.set_adapters(["one"], [0.5])
    half = video()
    pipeline.set_adapters(["one"], [1.0])
    assert torch.allclose(video(joint_attention_kwargs={"scale": 0.5}), half, atol=1e-5)
    pipeline.fuse_lora(adapter_names=["one"])
    assert torch.allclose(video(), full, atol=1e-4)
    pipeline.unfuse_lora()
    pipeline.unload_lora_weights()
    assert torch.allclose(video(), before, atol=1e-4)
