import json

import numpy as np
import pytest
from PIL import Image
from training_run import make_base

from phys_pipeline.cli import main
from phys_pipeline.media import Video, write_video
from phys_pipeline.media.synthetic import textured_clip
from phys_pipeline.tables import write_table
from training.config import TrainConfig, load_config
from training.encoding import make_encoder
from training.filling import fill_cache, over_ranks
from training.sources import find_clips

SMALL = ["frames=8", "height=32", "width=32", "fps=8"]


@pytest.fixture
def clips(tmp_path):
    folder = tmp_path / "clips"
    folder.mkdir()
    for name, size, motion in (("pan", (32, 64), {"velocity": (1.5, 0.0)}), ("roll", (48, 48), {"rotation": 0.08})):
        write_video(folder / f"{name}.mp4", Video.from_tensor(textured_clip(12, *size, seed=3, **motion).video, fps=8))
        (folder / f"{name}.txt").write_text(f"a texture: {name}")
    write_video(folder / "short.mp4", Video.from_frames(np.zeros((3, 32, 32, 3), np.uint8), 8.0))
    (folder / "short.txt").write_text("too short")
    write_video(folder / "mute.mp4", Video.from_frames(np.zeros((9, 32, 32, 3), np.uint8), 8.0))
    return folder


def test_inspect_tells_what_becomes_of_every_clip(clips, tmp_path, capsys):
    more = ["buckets=[[8,32,32],[8,16,32]]", "frame_extraction=uniform"]
    assert main(["data", "inspect", str(clips), "-o", str(tmp_path / "out"), *SMALL, "--json", *more]) == 0
    about = json.loads(capsys.readouterr().out)
    assert (about["used"], about["skipped"], about["windows"]) == (2, 2, 8)
    assert about["buckets"] == {"8x16x32": {"clips": 1, "windows": 4}, "8x32x32": {"clips": 1, "windows": 4}}
    assert about["sizes"] == {"64x32": 1, "48x48": 1} and about["fps"] == {"8": 2}
    reasons = {s["name"]: s["reason"] for s in about["skipped_clips"]}
    assert "no caption" in reasons["mute.mp4"] and "too short: 3 frames" in reasons["short.mp4"]
    assert json.loads((tmp_path / "out" / "inspection.json").read_text()) == about
    with Image.open(tmp_path / "out" / "contact_sheet.png") as sheet:
        pixels = np.asarray(sheet)
        assert sheet.width == 740 and pixels[20:60, 20:720].std() > 10  # the first row of frames
    kept, _ = find_clips(TrainConfig(data=str(tmp_path / "out" / "clips.jsonl")))
    assert [c.caption for c in kept] == ["a texture: pan", "a texture: roll"]


def test_inspect_keeps_what_moves_as_asked(clips, tmp_path, capsys):
    assert main(["data", "inspect", str(clips), "--dominant", "rotation", "--no-cuts", *SMALL]) == 0
    text = capsys.readouterr().out
    assert "1 clip used" in text and "\npan.mp4    dominant is translation, not rotation\n" in text
    assert main(["data", "inspect", str(clips), "--max-loss", "0.0001", *SMALL]) == 2
    output = capsys.readouterr()
    assert "pan.mp4    composite is" in output.out and "no usable clip" in output.err


def test_score_writes_a_table(clips, tmp_path, capsys):
    assert main(["data", "score", str(clips), "-o", str(tmp_path / "s.csv"), "--workers", "1"]) == 0
    assert "4 clips scored, 0 could not be" in capsys.readouterr().out
    assert (tmp_path / "s.csv").read_text().startswith("video,caption,frames,fps")


def test_the_list_of_clips_keeps_the_scores_for_later_filters(clips, tmp_path, capsys):
    for name in ("pan", "roll", "short"):
        (clips / f"{name}.mp4").rename(clips / f"{name}.keep")
    rows = [{"video": "pan.mp4", "caption": "x", "composite": "0.4", "dominant": "rotation", "has_cut": "false", "bytes": "7"}]
    write_table(tmp_path / "s.csv", rows, list(rows[0]))
    (clips / "mute.txt").write_text("nothing moves")
    (clips / "pan.keep").rename(clips / "pan.mp4")
    command = ["data", "inspect", str(clips), "-o", str(tmp_path / "out"), "--scores", str(tmp_path / "s.csv"), *SMALL]
    assert main(command) == 0
    text = capsys.readouterr().out
    assert "loss   dominant  caption" in text and "0.400  rotation  a texture: pan" in text
    mute, pan = [json.loads(line) for line in (tmp_path / "out" / "clips.jsonl").read_text().splitlines()]
    assert pan == {
        "video": "../clips/pan.mp4",
        "caption": "a texture: pan",
        "composite": 0.4,
        "dominant": "rotation",
        "has_cut": False,
    }
    assert mute["composite"] is None
    kept, _ = find_clips(TrainConfig(data=str(tmp_path / "out" / "clips.jsonl"), data_filters={"composite": "<0.5"}))
    assert [c.caption for c in kept] == ["a texture: pan"]
    assert main([*command, "--max-loss", "0.3"]) == 2 and "composite is 0.4, not <=0.3" in capsys.readouterr().out


def test_cache_checks_its_settings_and_starts_no_process_for_what_is_there(clips, tmp_path, capsys):
    base = make_base(tmp_path / "base", clips=1, frames=5)
    command = ["data", "cache", f"data={base / 'clips'}", f"model={base / 'model'}", f"cache_dir={tmp_path / 'cache'}"]
    command += ["frames=5", "height=16", "width=16", "--workers", "1"]
    assert main([*command, "--workers", "0"]) == 2 and "use at least 1" in capsys.readouterr().err
    assert main([*command, "frames=6"]) == 2 and "takes 4k+1: use 5 or 9" in capsys.readouterr().err
    make_encoder.cache_clear()
    encoder = make_encoder(json.dumps(load_config(None, command[2:-2]).to_dict()))
    fill_cache(encoder, over_ranks(encoder, 0, 1, list))
    assert main(command) == 0
    text = capsys.readouterr().out
    assert (
        text.splitlines()[1].split() == ["clips", "0", "1", "0"] and f"every clip: {tmp_path / 'cache' / 'clips.jsonl'}" in text
    )


def test_mistakes_are_one_line(clips, tmp_path, capsys):
    for arguments, message in (
        (["inspect", str(tmp_path / "nowhere")], "no such folder"),
        (["score", str(clips), "-o", "s.xls"], "a table ends with"),
        (["score", str(clips), "-o", "s.csv", "--workers", "0"], "use at least 1"),
        (["inspect", str(clips), "framse=3"], "did you mean 'frames'?"),
        (["watch"], "unknown command data 'watch'"),
        (["score", str(clips), "-o", str(clips / "pan.mp4" / "s.csv")], "pan.mp4): check the paths and the free space"),
    ):
        assert main(["data", *arguments]) == 2
        assert message in capsys.readouterr().err
    assert main(["data", "--help"]) == 0 and "data score SOURCE" in capsys.readouterr().out
