"""The tiny model's trainer: exact resume, an exported folder that diffusers runs unchanged, tokenizers, data and the tracker."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import phys_pipeline  # noqa: F401  (diffusers finds the autoencoder's class through it)
from phys_pipeline.media.synthetic import MOTIONS, REVERSED, make_clip, object_clip, write_caption
from phys_pipeline.models import FrameAutoencoder
from training import pretrain_tiny
from training.evaluate_tiny import Trial, contact_sheet, draw_subjects, generate, write_report
from training.tiny_autoencoder import equalise_latents
from training.tiny_data import Batch, LatentPool
from training.tiny_model import SIZES, TinyModel, build_clip_tokenizer, build_tokenizer, stored_tokenizers
from training.tiny_parallel import ShardedGradients, trapezoid, warmed_cosine
from training.tiny_probe import caption_gaps, swapped
from training.tiny_sources import ShapeSource, held_out_subjects
from training.tiny_tracker import shows_motion, track

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ["a red square moves right", "", "handheld camera moves toward a toy frog", "Zoë's  2 dogs\nrun — fast! 犬", "a  b "]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """`straight`: four steps at once; `resumed`: two in a process of their own, then the rest."""
    folder = tmp_path_factory.mktemp("pretrain")
    common = ["--smoke", "--steps", "4", "--seed", "3"]

    def places(name: str) -> list[str]:
        return ["--output", str(folder / name / "model"), "--work", str(folder / name / "work")]

    first = [sys.executable, "training/pretrain_tiny.py", *common, *places("resumed"), "--stop-at", "2"]
    done = subprocess.run(first, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert pretrain_tiny.main([*common, *places("resumed"), "--resume"]) == 0
    assert pretrain_tiny.main([*common, *places("straight")]) == 0
    return folder


def test_resuming_gives_the_same_run_to_the_bit(runs: Path):
    straight, resumed = (
        torch.load(runs / name / "work" / "checkpoint.pt", weights_only=True) for name in ("straight", "resumed")
    )
    assert straight["step"] == resumed["step"] == 4
    for part in ("model", "averaged"):
        assert all(torch.equal(value, resumed[part][name]) for name, value in straight[part].items())
    logs = [
        [json.loads(line) for line in (runs / name / "work" / "log.jsonl").read_text().splitlines()]
        for name in ("straight", "resumed")
    ]
    assert [(r["stage"], r["step"], r["loss"]) for r in logs[0]] == [(r["stage"], r["step"], r["loss"]) for r in logs[1]]
    assert [r["step"] for r in logs[0] if r["stage"] == "transformer"] == [1, 2, 3, 4]


def test_a_used_work_folder_is_not_overwritten_and_other_settings_are_refused(runs: Path, tmp_path: Path, capsys):
    work = str(runs / "straight" / "work")
    common = ["--smoke", "--steps", "4", "--output", str(tmp_path / "model"), "--work", work]
    assert pretrain_tiny.main([*common, "--seed", "3"]) == 2
    assert "--resume" in capsys.readouterr().err
    assert pretrain_tiny.main([*common, "--seed", "4", "--resume"]) == 2
    assert "other settings" in capsys.readouterr().err
    assert not (tmp_path / "model").exists()


def test_the_exported_folder_runs_in_the_unchanged_pipeline(runs: Path):
    from diffusers import HunyuanVideoPipeline

    folder = runs / "straight" / "model"
    settings = json.loads((folder / "phys_pipeline.json").read_text())
    assert settings["family"] == "hunyuan_video" and len(settings["revision"]) == 16
    pipe = HunyuanVideoPipeline.from_pretrained(folder)
    pipe.set_progress_bar_config(disable=True)
    assert {part.dtype for part in (pipe.transformer, pipe.vae, pipe.text_encoder, pipe.text_encoder_2)} == {torch.float32}
    assert isinstance(pipe.vae, FrameAutoencoder) and pipe.tokenizer.padding_side == "right"
    stored = stored_tokenizers(runs / "straight" / "work")
    for text in TEXTS:
        assert pipe.tokenizer.decode(pipe.tokenizer(text).input_ids, skip_special_tokens=True) == text
        assert pipe.tokenizer(text).input_ids == stored[0](text).input_ids
        assert pipe.tokenizer_2(text).input_ids == stored[1](text).input_ids
    generation = settings["generation"] | {"num_inference_steps": 2}
    clips = generate(pipe, TEXTS[:2], [5, 6], generation)
    assert clips[0].shape == (3, 4, 32, 32) and torch.isfinite(clips[0]).all() and not torch.equal(clips[0], clips[1])
    alone = generate(pipe, TEXTS[1:2], [6], generation)[0]
    assert torch.allclose(clips[1], alone, atol=1e-4)
    assert contact_sheet(clips, TEXTS[:2]).size[1] == 32 + 14


def test_weights_are_float16_and_readable_by_all(runs: Path):
    from safetensors.torch import load_file

    files = list((runs / "straight" / "model").rglob("*.safetensors"))
    assert len(files) == 4
    for file in files:
        assert {tensor.dtype for tensor in load_file(file).values()} == {torch.float16}
        assert file.stat().st_mode & 0o044 == 0o044


def test_caption_words_are_single_tokens_and_the_empty_caption_has_one():
    tokenizer = build_tokenizer()
    assert tokenizer.tokenize("a red square rotates counterclockwise") == [
        "a",
        "Ġred",
        "Ġsquare",
        "Ġrotates",
        "Ġcounterclockwise",
    ]
    assert tokenizer("").input_ids == [tokenizer.bos_token_id]
    assert build_clip_tokenizer().tokenize("a red square moves right") == [
        "a</w>",
        "red</w>",
        "square</w>",
        "moves</w>",
        "right</w>",
    ]


def test_conditioning_equals_the_pipelines_own_on_the_valid_tokens():
    from diffusers import HunyuanVideoPipeline

    model = TinyModel(SIZES["smoke"], 16).eval()
    pipe = HunyuanVideoPipeline(
        model.text_encoder, model.tokenizer, model.transformer, FrameAutoencoder(), None, model.text_encoder_2, model.tokenizer_2
    )  # type: ignore[arg-type]
    with torch.no_grad():
        ours = model.condition(TEXTS[:3])
        states, pooled, mask = pipe.encode_prompt(
            TEXTS[:3], prompt_template={"template": "{}", "crop_start": 0}, max_sequence_length=32
        )
    length = ours["encoder_hidden_states"].shape[1]
    assert torch.equal(ours["encoder_attention_mask"], mask[:, :length]) and not mask[:, length:].any()
    valid = mask[:, :length].bool()
    assert torch.allclose(ours["encoder_hidden_states"][valid], states[:, :length][valid], atol=1e-5)
    assert torch.allclose(ours["pooled_projections"], pooled, atol=1e-5)


def test_equalised_latents_decode_as_before():
    torch.manual_seed(0)
    model, video = FrameAutoencoder().eval(), torch.rand(4, 3, 2, 32, 32) * 2 - 1
    with torch.no_grad():
        before = model(video).sample
        equalise_latents(model, model.encode(video).latent_dist.mode())
        latents = model.encode(video).latent_dist.mode() * model.config.scaling_factor
        assert torch.allclose(model(video).sample, before, atol=1e-4)
    assert latents.mean((0, 2, 3, 4)).abs().max() < 1e-3 and (latents.std((0, 2, 3, 4)) - 1).abs().max() < 1e-3


def test_pool_batches_depend_on_seed_and_step_alone_and_never_show_held_out_subjects(tmp_path: Path):
    torch.manual_seed(0)
    autoencoder = FrameAutoencoder().eval()

    def pool(folder: str) -> LatentPool:
        source = ShapeSource(1, 3, 32)
        return LatentPool(tmp_path / folder, autoencoder, source, seed=1, chunk=12, initial=1, largest=3, grow_every=5)

    first, late = pool("a"), pool("b")
    for step in range(12):
        first.batch(step, 4)
    there, here, stored = first.batch(11, 4), late.batch(11, 4), pool("a").batch(11, 4)
    for other in (here, stored):
        assert torch.equal(there.latents, other.latents) and there.captions == other.captions
        assert torch.equal(there.noise, other.noise) and torch.equal(there.guidance, other.guidance)
    assert first.batch(10, 4).captions != there.captions or not torch.equal(first.batch(10, 4).latents, there.latents)
    held_out = held_out_subjects()
    assert len(held_out) == 24 and ("red", "square", "moves right") not in held_out
    shown = set(first._labels)
    assert not shown & set(held_out)
    forbidden = {f"a {c} {s} {m}" for c, s, m in held_out}
    assert not {caption for step in range(12) for caption in first.batch(step, 4).captions} & forbidden


def test_one_way_batches_show_no_reverse_and_reversed_clips_carry_the_fitting_caption(tmp_path: Path):
    torch.manual_seed(0)
    pool = LatentPool(
        tmp_path, FrameAutoencoder().eval(), ShapeSource(1, 3, 32), seed=1, chunk=24, initial=1, largest=1, grow_every=1
    )
    shown: dict[bool, set[str]] = {False: set(), True: set()}
    for step in range(40):
        for one_way in (False, True):
            batch = pool.batch(step, 4, one_way=one_way)
            for latents, caption in zip(batch.latents, batch.captions, strict=True):
                if not caption:
                    continue
                stored = pool._latents[0].float()
                index = int(((stored == latents).flatten(1).all(1) | (stored == latents.flip(1)).flatten(1).all(1)).nonzero()[0])
                colour, shape, motion = pool._labels[index]
                if motion != "stays still" and torch.equal(stored[index], latents.flip(1)):
                    motion = REVERSED[motion]
                assert caption in {write_caption(colour, shape, motion, np.random.default_rng(i), 0.5) for i in range(60)}
                shown[one_way].add(motion)
    assert shown[True] == {"moves right", "moves down", "rotates clockwise", "grows", "stays still"}
    assert shown[False] == set(MOTIONS)


def test_sharded_gradients_equal_those_of_the_whole_batch():
    torch.manual_seed(0)
    net, data = torch.nn.Linear(6, 2), torch.randn(8, 6)
    unused = torch.nn.Parameter(torch.ones(1))
    sharded = ShardedGradients([*net.parameters(), unused], 2)
    loss = sharded(lambda part: net(data[4 * part : 4 * part + 4]).square().mean())
    got = [parameter.grad.clone() for parameter in net.parameters()]
    sharded.close()
    net.zero_grad()
    whole = net(data).square().mean()
    whole.backward()
    assert loss == pytest.approx(whole.item(), rel=1e-6) and unused.grad is None
    assert all(torch.allclose(a, b.grad, atol=1e-6) for a, b in zip(got, net.parameters(), strict=True))


def test_learning_rates_rise_hold_and_fall():
    rates = [trapezoid(step, 100, peak=1.0, warm_up=10) for step in range(100)]
    assert rates[0] == pytest.approx(0.1) and rates[9:70] == [1.0] * 61 and rates[99] < 0.05 and min(rates) > 0
    assert rates[:60] == [trapezoid(step, 200, peak=1.0, warm_up=10) for step in range(60)]
    cosine = [warmed_cosine(step, 100, peak=1.0, warm_up=10) for step in range(100)]
    assert cosine[0] < 0.11 and max(cosine) > 0.95 and cosine[-1] < 0.03


@pytest.mark.parametrize("motion", MOTIONS)
def test_the_tracker_is_right_about_known_motion_and_denies_the_others(motion: str):
    for seed in range(8):
        clip = make_clip(100 + seed, motion=motion)
        seen = track(clip.video, clip.shape)
        assert seen is not None and seen.colour == clip.colour
        assert [name for name in MOTIONS if shows_motion(seen, name)] == [motion]
        backwards = track(clip.video.flip(1), clip.shape)
        assert backwards is not None and shows_motion(backwards, REVERSED[motion])


def test_the_tracker_measures_displacement_turn_growth_and_steadiness():
    seen = track(object_clip("bar", "yellow", velocity=(0.5, -1.0), rotation=0.05, zoom=0.01, texture=0.0).video, "bar")
    assert seen is not None
    assert (seen.dx, seen.dy) == pytest.approx((7.5, -15.0), abs=0.3)
    assert seen.turn == pytest.approx(0.75, abs=0.03) and seen.growth == pytest.approx(0.15, abs=0.02)
    assert seen.straightness < 0.1 and seen.seen == 1.0
    assert track(torch.full((3, 16, 64, 64), 0.2), "bar") is None


def test_evaluation_prompts_start_with_the_example_and_alternate():
    subjects = draw_subjects(25, 0)
    assert subjects[0] == (("red", "square", "moves right"), False) and len(subjects) == 25
    held_out = set(held_out_subjects())
    assert all((subject in held_out) == flag for subject, flag in subjects)
    assert sum(flag for _, flag in subjects) == 12
    assert draw_subjects(25, 0) == subjects and draw_subjects(25, 1) != subjects


def test_the_report_counts_and_names_its_settings(runs: Path, tmp_path: Path):
    right, wrong = (make_clip(seed, motion=motion) for seed, motion in ((1, "moves up"), (2, "moves down")))
    trials = [
        Trial((clip.colour, clip.shape, "moves up"), held_out, 0, track(clip.video, clip.shape))
        for clip, held_out in ((right, True), (right, False), (wrong, False))
    ]
    trials.append(Trial(("red", "bar", "grows"), True, 3, None))
    records = [json.loads(line) for line in (runs / "straight" / "work" / "log.jsonl").read_text().splitlines()]
    settings = json.loads((runs / "straight" / "model" / "phys_pipeline.json").read_text())["generation"]
    header = {"seed": 7, "revision": "abc", "steps": 4, "training_seed": 3}
    (tmp_path / "report.md").write_text("old\n\n## Notes\n\nkept\n")
    write_report(tmp_path / "report.md", trials, records, settings, header, {"right caption": 0.5, "wrong motion": 0.61})
    text = (tmp_path / "report.md").read_text()
    assert "| motion, all prompts | 2 / 4 | 50 % | 15-85 % |" in text
    assert "| motion, combinations never shown | 1 / 2 |" in text and "| colour | 3 / 4 |" in text
    assert text.endswith("## Notes\n\nkept\n") and "old" not in text and "right caption 0.5000, wrong motion 0.6100" in text
    assert "--seed 7" in text and "20 steps, true_cfg_scale 2.0" in text
    assert (tmp_path / "report.png").stat().st_size > 5000
    assert (tmp_path / "report.jsonl").read_text().count("\n") == len(records)
    assert {record["stage"] for record in records} == {"autoencoder", "transformer", "decoder"}


def test_the_caption_probe_swaps_one_word_and_sees_whether_it_matters(runs: Path):
    from diffusers import HunyuanVideoPipeline

    subject = ("red", "circle", "moves left")
    assert swapped(subject, "motion") == ("red", "circle", "moves right")
    for part, index in (("colour", 0), ("shape", 1), ("motion", 2)):
        other = swapped(subject, part)
        assert [a != b for a, b in zip(subject, other, strict=True)] == [i == index for i in range(3)]
    folder = runs / "straight" / "model"
    settings = json.loads((folder / "phys_pipeline.json").read_text())["generation"]
    pipe = HunyuanVideoPipeline.from_pretrained(folder).to(torch.float32)
    gaps = caption_gaps(pipe, settings, clips=9)
    assert list(gaps) == ["right caption", "wrong motion", "wrong colour", "wrong shape"]
    assert len(set(gaps.values())) == 4 and all(0 < value < 10 for value in gaps.values())
    assert gaps == caption_gaps(pipe, settings, clips=9)
    pipe.encode_prompt = (
        lambda texts, **_: tuple(  # a model that hears nothing does equally well with any caption
            value[: len(texts)]
            for value in HunyuanVideoPipeline.encode_prompt(pipe, ["x"] * 8, prompt_template=settings["prompt_template"])
        )
    )
    assert len(set(caption_gaps(pipe, settings, clips=9).values())) == 1


def test_a_share_of_the_noise_levels_is_low_and_without_one_the_draws_are_as_before():
    def drawn(stage: pretrain_tiny.Stage) -> torch.Tensor:
        batch = Batch(torch.zeros(0), [""] * 4000, torch.zeros(0), torch.zeros(0), torch.Generator().manual_seed(0))
        return pretrain_tiny.draw_sigma(batch, stage)

    shifted, mixed = drawn(pretrain_tiny.Stage(1.0)), drawn(pretrain_tiny.Stage(1.0, detail=0.5))
    assert float((shifted < 0.5).float().mean()) < 0.05
    assert 0.22 < float((mixed < 0.5).float().mean()) < 0.30  # half of one half
    same = mixed == shifted
    assert 0.45 < float(same.float().mean()) < 0.55  # the others are drawn after all else


def test_the_exported_autoencoder_scales_its_latents_as_training_did(runs: Path):
    for name in ("straight", "resumed"):  # one run that made its autoencoder itself, one that read it back
        exported = json.loads((runs / name / "model" / "vae" / "config.json").read_text())
        trained = json.loads((runs / name / "work" / "autoencoder" / "config.json").read_text())
        assert exported["scaling_factor"] == trained["scaling_factor"] != 1.0
