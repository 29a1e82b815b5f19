"""Pairs as the page makes them: those of the library bit for bit, cancelled at any step, sorted by score, repeatable."""

from __future__ import annotations

import json
import shlex

import pytest

from phys_pipeline.cli import build_parser
from phys_pipeline.errors import ConfigError, MediaError, ModelError
from phys_pipeline.families import load_model
from phys_pipeline.media import read_video, write_video
from phys_pipeline.pipelines import generate_pair
from phys_pipeline.web.engine.compare import (
    VideoReady,
    choices_of,
    command_of,
    downloads,
    estimated_seconds,
    make_pairs,
    ranking,
)  # fmt: skip
from phys_pipeline.web.engine.jobs import Cancelled, Done, Job, Progress
from phys_pipeline.web.engine.models import Models
from phys_pipeline.web.engine.runs import Runs


@pytest.fixture
def given(model_folder, adapter_folder):
    return {
        "prompt": "a red square moves right", "model": str(model_folder), "adapter": str(adapter_folder), "weight": 1.0,
        "seed": 3, "count": 1, "frames": 5, "height": 16, "width": 16, "steps": 2, "guidance": 6.0, "true_cfg": 1.0,
    }  # fmt: skip


def made(settings, given, job=None):
    models, runs, job = Models(settings), Runs(settings.root / "runs"), job or Job()
    choices = choices_of(models, given)
    events = list(job.follow(lambda job: make_pairs(models, runs, choices, job)))
    assert isinstance(events[-1], Done)
    return events, events[-1].value, models, choices


def test_a_pair_is_that_of_the_library(settings, given, model_folder, adapter_folder, tmp_path):
    events, run, models, choices = made(settings, given)
    wanted = generate_pair(load_model(str(model_folder)), given["prompt"], adapter_folder, 3)
    for side in ("baseline", "physics"):
        write_video(tmp_path / f"{side}.mp4", getattr(wanted, side))
        assert run.path(f"{side}-seed-3.mp4").read_bytes() == (tmp_path / f"{side}.mp4").read_bytes()
    assert [event.side for event in events if isinstance(event, VideoReady)] == ["baseline", "physics"]
    assert estimated_seconds(models, choices) > 0
    assert [path.name for path in downloads(run, 3)] == [
        "baseline-seed-3.mp4", "physics-seed-3.mp4", "comparison-seed-3.mp4", "scores-seed-3.json",
    ]  # fmt: skip
    scores = json.loads(run.path("scores-seed-3.json").read_text())
    assert scores["videos"]["physics"]["schema"] == "phys-pipeline/motion-report" and "plausibility" in scores["metrics"]


def test_the_command_line_says_the_same(settings, given):
    _, run, _, _ = made(settings, {**given, "weight": 0.5})
    command = command_of(run.read(), 3)
    program, *rest = shlex.split(command)
    options = build_parser().parse_args(rest)
    assert program == "phys-pipeline" and options.prompt == given["prompt"] and options.weight == 0.5 and options.baseline
    assert (options.seed, options.num_inference_steps, options.num_frames, options.height) == (3, 2, 5, 16)
    assert (options.model, options.adapter) == (given["model"], given["adapter"])


def test_a_family_that_was_chosen_is_in_the_command_line(settings, given, monkeypatch):
    monkeypatch.setattr(Models, "family", lambda self, chosen, source: chosen)  # as for a model that says none
    _, run, _, choices = made(settings, {**given, "family": "hunyuan_video", "adapter": "none"})
    assert choices.family == "hunyuan_video"
    options = build_parser().parse_args(shlex.split(command_of(run.read(), 3))[1:])
    assert (
        options.family == "hunyuan_video" and json.loads(run.path("scores-seed-3.json").read_text())["family"] == "hunyuan_video"
    )


def test_the_time_is_told_from_the_first_step_on(settings, given):
    first, _, models, choices = made(settings, given)
    counted = [event for event in first if isinstance(event, Progress) and event.total]
    assert "known after the first step" in str(counted[0]) and counted[0].seconds_left is None
    assert all(event.seconds_left is not None and "left" in str(event) for event in counted[1:])
    again = list(Job().follow(lambda job: make_pairs(models, Runs(settings.root / "runs"), choices, job)))
    counted = [event for event in again if isinstance(event, Progress) and event.total]
    assert 0 < counted[0].seconds_left < 1000  # what the first run took


def test_without_an_adapter_there_is_one_video(settings, given):
    _, run, _, _ = made(settings, {**given, "adapter": "none"})
    assert list(run.read()["pairs"]["3"]) == ["baseline"]
    assert "--baseline" not in command_of(run.read(), 3)


def test_several_seeds_are_sorted_and_none_is_random_twice(settings, given):
    _, run, _, choices = made(settings, {**given, "count": 3, "seed": -1})
    ranked = ranking(run.read())
    assert {entry["seed"] for entry in ranked} == set(choices.seeds) and len(choices.seeds) == 3
    moving = [entry["physics"]["report"]["loss"]["composite"] for entry in ranked if entry["moves"]]
    assert moving == sorted(moving) and [entry["moves"] for entry in ranked] == sorted((e["moves"] for e in ranked), reverse=True)


def test_cancelled_in_the_second_video_keeps_the_first(settings, given):
    models, runs, job = Models(settings), Runs(settings.root / "runs"), Job()
    choices = choices_of(models, given)
    ready = []
    with pytest.raises(Cancelled):
        for event in job.follow(lambda job: make_pairs(models, runs, choices, job)):
            if isinstance(event, VideoReady):
                ready.append(event)
                job.cancel()
    (event,) = ready
    assert [path.name for path in downloads(event.run, 3)] == ["baseline-seed-3.mp4"]
    assert read_video(event.run.path("baseline-seed-3.mp4")).frames.shape == (5, 16, 16, 3)
    made(settings, given)  # the device is free, and the adapter's layers are gone


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("prompt", ""), ("prompt", "x" * 2000), ("weight", float("nan")), ("seed", -2), ("seed", 1.5), ("count", 9),
        ("count", 0), ("frames", float("nan")), ("frames", 2), ("frames", 10**6), ("height", 0), ("width", "64"),
        ("steps", 0), ("steps", 10**9), ("guidance", float("inf")), ("true_cfg", None),
        ("adapter_file", "../../etc/passwd"), ("adapter", "/no/such/file"),
    ],
)  # fmt: skip
def test_bad_choices(settings, given, key, value):
    with pytest.raises((ConfigError, ModelError, MediaError)):
        choices_of(Models(settings), {**given, key: value})
