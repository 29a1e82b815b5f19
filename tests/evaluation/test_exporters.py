"""Folder layouts of other benchmarks, as documented by them."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from phys_pipeline.errors import ConfigError, DataError
from phys_pipeline.evaluation import VideoSample
from phys_pipeline.evaluation.exporters import export_physics_iq, export_vbench, export_videophy2, main
from phys_pipeline.media import Video, read_video, write_video


@pytest.fixture
def clip(tmp_path):
    def make(id="p0", seed=None, prompt="A ball, it rolls.", frames=6, fps=8.0, suffix=".mp4", model="ours"):
        path = tmp_path / "clips" / f"{id.replace('/', '')}_seed{seed}{suffix}"
        pixels = np.random.default_rng(0).integers(0, 255, (frames, 32, 32, 3), np.uint8)
        write_video(path, Video.from_frames(pixels, fps))
        return VideoSample(id, model, prompt, seed, path)

    return make


def test_vbench_names_are_prompt_and_index(clip, tmp_path):
    samples = [clip(seed=9), clip(seed=3), clip("p1", prompt="Rain", suffix=".gif")]
    files = export_vbench(samples, tmp_path / "vbench")
    assert [file.name for file in files] == ["A ball, it rolls.-0.mp4", "A ball, it rolls.-1.mp4", "Rain-0.mp4"]
    assert files[0].read_bytes() == samples[1].path.read_bytes()  # seeds in order, files unchanged
    assert len(read_video(files[2])) == 6


@pytest.mark.parametrize("prompt", ["", "either/or", "x" * 300, "two\nlines", "ü" * 130])
def test_vbench_refuses_prompts_that_are_no_file_names(prompt, clip, tmp_path):
    with pytest.raises(DataError):
        export_vbench([clip(prompt=prompt)], tmp_path / "vbench")
    assert not (tmp_path / "vbench").exists()


def test_videophy2_table(clip, tmp_path):
    prompt = 'He said "go", and, then\nit went.'
    files = export_videophy2([clip(prompt=prompt), clip("p1", seed=2)], tmp_path / "videophy")
    rows = list(csv.DictReader((tmp_path / "videophy" / "videos.csv").open(newline="")))
    assert [row["caption"] for row in rows] == [prompt, "A ball, it rolls."]
    assert [row["videopath"] for row in rows] == [str(file.resolve()) for file in files]
    assert [file.name for file in files] == ["p0.mp4", "p1_seed2.mp4"] and all(file.is_file() for file in files)


@pytest.mark.parametrize("fps", [8.0, 12.5, 30000 / 1001])
def test_physics_iq_is_five_seconds_exactly(fps, clip, tmp_path):
    (file,) = export_physics_iq([clip("0001_perspective-left_ball", frames=170, fps=fps)], tmp_path / "iq")
    shown = read_video(file)
    assert file.name == "0001_perspective-left_ball.mp4" and len(shown) == round(5 * fps)
    assert shown.duration == pytest.approx(5.0, abs=1e-6)


def test_physics_iq_refuses_what_it_can_not_use(clip, tmp_path):
    for samples, words in [
        ([clip("ball", frames=50)], "four digits"),
        ([clip("0001", frames=39)], "needs 5 s"),
        ([clip("0001", seed=1, frames=50), clip("0001", seed=2, frames=50)], "choose a seed"),
    ]:
        with pytest.raises(DataError, match=words):
            export_physics_iq(samples, tmp_path / "iq")
    assert not (tmp_path / "iq").exists()


def test_nothing_twice_nothing_overwritten(clip, tmp_path):
    with pytest.raises(DataError, match="same prompt and seed"):
        export_vbench([clip(), clip(model="other")], tmp_path / "out")
    with pytest.raises(DataError, match="no video"):
        export_videophy2([], tmp_path / "out")
    with pytest.raises(DataError, match="can't be a file name"):
        export_videophy2([clip("a/b")], tmp_path / "out")
    with pytest.raises(DataError, match="exists already"):
        export_vbench([clip()], tmp_path)


def test_the_command(clip, tmp_path, capsys):
    sample = clip(seed=4)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"id": "p0", "prompt": "A ball"}) + "\n")
    source, output = f"ours={sample.path.parent}", tmp_path / "out"
    assert main([source, "--layout", "vbench", "--prompts", str(prompts), "-o", str(output)]) == 0
    assert "1 videos" in capsys.readouterr().out and (output / "A ball-0.mp4").is_file()
    with pytest.raises(ConfigError, match="one column"):
        main([source, f"other={sample.path.parent}", "--layout", "vbench", "--prompts", str(prompts), "-o", str(tmp_path / "x")])
