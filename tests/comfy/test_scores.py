"""Scores, overlays and comparisons in a server: the package's numbers, any input right or a clear error, little memory."""

import importlib.util
import json
import time
from pathlib import Path

import pytest
from graphs import frames, look, node, overlay, own, score, side_by_side
from server import ROOT, Refused, output_file

from phys_pipeline.media import read_video, write_video
from phys_pipeline.media.batch import ImageBatch
from phys_pipeline.scoring import score_file, score_video

_spec = importlib.util.spec_from_file_location("pack_frames", ROOT / "tests" / "comfy" / "pack" / "frames.py")
frames_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(frames_module)


def report(result, number):
    return json.loads(result.text(number))["value"]


def moving(**given):
    """What Test_Frames gives, made here."""
    return frames_module.moving(**frames(**given)["inputs"])


@pytest.mark.parametrize(
    "given",
    [{}, {"kind": "half"}, {"kind": "strided noise"}, {"channels": 4}, {"channels": 1}, {"height": 37, "width": 51}],
    ids=str,
)
def test_same_numbers_as_the_package(server, given):
    result = server.run({"1": frames(**given), "2": score(["1", 0]), "3": look(["2", 1]), "4": look(["2", 0])}).ok()
    expected = score_video(ImageBatch(moving(**given), 8.0, "the video")).to_dict()
    found = report(result, "3")
    assert found == {**json.loads(json.dumps(expected)), "start_frame": 0}
    assert report(result, "4") == found["loss"]["composite"]


def test_settings_of_the_score(oldest):
    graph = {"1": frames(frames=40), "2": score(["1", 0], motion_class="rotation", preset="paper", start_frame=5, max_frames=20)}
    result = oldest.run({**graph, "3": look(["2", 1]), "4": look(["2", 0])}).ok()
    expected = score_video(ImageBatch(moving(frames=40)[5:25], 8.0), preset="paper")
    assert report(result, "3")["frames"] == 20 and report(result, "3")["start_frame"] == 5
    assert report(result, "4") == expected.loss["rotation"]
    assert "motion loss" in result.text("2") and result.outputs["2"]["images"]


def test_a_video_brings_its_rate(server):
    graph = {
        "1": frames(),
        "2": node("CreateVideo", images=["1", 0], fps=6.0),
        "3": score(video=["2", 0]),
        "4": look(["3", 1]),
    }
    assert report(server.run(graph).ok(), "4")["fps"] == 6.0


@pytest.mark.parametrize("rgba", [3, 4])
@pytest.mark.parametrize("style", ["panel", "bar", "minimal", "beside the picture"])
def test_overlay_keeps_what_it_does_not_cover(oldest, style, rgba):
    graph = {"1": frames(channels=rgba), "2": score(["1", 0]), "3": overlay(["1", 0], ["2", 1], style=style)}
    result = json.loads(oldest.run({**graph, "4": look(["3", 0])}).ok().text("4"))
    assert result["finite"] and result["low"] >= 0 and result["high"] <= 1.0 + 1e-6
    if style != "beside the picture":
        assert result["shape"] == [16, 48, 64, rgba] and result["type"] == "torch.float32"


@pytest.mark.parametrize(
    ("layout", "count"),
    [(layout, count) for layout in ("horizontal", "vertical", "wipe", "difference") for count in (1, 2, 9)]
    + [("horizontal", 73)],
)
def test_side_by_side_of_unequal_videos(oldest, layout, count):
    """Odd sizes, RGBA beside RGB, float16 beside float32, unequal lengths, a batch that isn't contiguous."""
    graph = {
        "1": frames(frames=count, kind="strided", height=37, width=51),
        "2": frames(frames=9, channels=4, kind="half", height=48, width=40),
        "3": side_by_side(images_a=["1", 0], images_b=["2", 0], layout=layout),
        "4": look(["3", 1]),
        "5": look(["3", 0]),
    }
    result = oldest.run(graph).ok()
    images = json.loads(result.text("4"))
    assert images["shape"][0] == max(count, 9) and images["finite"]
    assert images["shape"][1] % 2 == images["shape"][2] % 2 == 0
    assert json.loads(result.text("5"))["digest"] == images["digest"]


def test_lengths(oldest):
    graph = {"1": frames(frames=12), "2": frames(frames=9), "4": look(["3", 1])}
    for length, count in (("hold last", 12), ("trim", 9)):
        graph["3"] = side_by_side(images_a=["1", 0], images_b=["2", 0], length=length)
        assert json.loads(oldest.run(graph).ok().text("4"))["shape"][0] == count
    graph["3"] = side_by_side(images_a=["1", 0], images_b=["2", 0], length="error")
    assert "make them equal" in oldest.run(graph).error


def test_scores_are_drawn_and_the_video_is_saved(server):
    graph = {
        "1": frames(width=64), "2": frames(kind="noise"), "3": score(["1", 0]), "4": score(["2", 0]),
        "5": side_by_side(images_a=["1", 0], images_b=["2", 0], scores_a=["3", 1], scores_b=["4", 1]),
        "6": node("SaveVideo", video=["5", 0], filename_prefix="both", format="auto", codec="auto"),
        "7": own("ScoreReport", scores_a=["3", 1], scores_b=["4", 1], label_a="Baseline", label_b="Physics",
                 filename_prefix="physmotion/drawn", save=True),
        "8": look(["7", 0]),
    }  # fmt: skip
    result = server.run(graph).ok()
    video = read_video(output_file(server, result.outputs["6"]["images"][0]))
    assert len(video) == 16 and video.fps == 8.0
    delta = report(result, "8")
    written = json.loads(next((server.base / "output" / "physmotion").glob("drawn_*.json")).read_text())
    assert written["delta"] == delta != 0
    assert [entry["label"] for entry in written["reports"]] == ["Baseline", "Physics"]
    assert written["graph"]["1"]["class_type"] == "Test_Frames"
    assert next((server.base / "output" / "physmotion").glob("drawn_*.png")).stat().st_size > 1000


def test_gap(oldest):
    graph = {"1": frames(frames=2), "4": look(["3", 1])}
    for layout, axis in (("vertical", 1), ("horizontal", 2)):
        sizes = []
        for gap in (0, 30):
            graph["3"] = side_by_side(images_a=["1", 0], images_b=["1", 0], layout=layout, gap=gap)
            sizes.append(json.loads(oldest.run(graph).ok().text("4"))["shape"][axis])
        assert sizes[1] - sizes[0] == 30


BAD = {
    "one frame": (frames(frames=1), "at least 3"),
    "NaN": (frames(kind="nan"), "NaN"),
    "no frame": (frames(frames=0), "no picture"),
    "two channels": (frames(channels=2), "pictures must be"),
    "tiny": (frames(height=4, width=4), "at least 8x8"),
}


@pytest.mark.parametrize("case", BAD)
def test_frames_that_cannot_be_scored(oldest, case):
    images, words = BAD[case]
    result = oldest.run({"1": images, "2": score(["1", 0])})
    assert result.status == "error" and words in result.error, result.error


@pytest.mark.parametrize("case", ["NaN", "no frame", "two channels"])
def test_frames_that_cannot_be_shown(oldest, case):
    images, words = BAD[case]
    graph = {"1": images, "2": frames(), "3": side_by_side(images_a=["1", 0], images_b=["2", 0]), "4": look(["3", 1])}
    result = oldest.run(graph)
    assert result.status == "error" and words in result.error, result.error


def test_nothing_or_both_connected(oldest):
    assert "connect either" in oldest.run({"2": score()}).error
    graph = {"1": frames(), "2": node("CreateVideo", images=["1", 0], fps=6.0), "3": score(["1", 0], video=["2", 0])}
    assert "connect either" in oldest.run(graph).error


def test_a_rate_that_is_missing_or_none(oldest):
    with pytest.raises(Refused):
        oldest.queue({"1": frames(), "2": score(["1", 0], fps=0.0)})
    graph = {"1": frames(), "2": score(["1", 0])}
    del graph["2"]["inputs"]["fps"]
    with pytest.raises(Refused, match="fps"):
        oldest.queue(graph)
    graph = {"1": frames(), "2": node("Test_Rate", images=["1", 0], fps=0), "3": score(video=["2", 0])}
    assert "fps must be a positive number" in oldest.run(graph).error
    graph = {**graph, "3": side_by_side(video_a=["2", 0], images_b=["1", 0]), "4": look(["3", 0])}
    assert "fps must be a positive number" in oldest.run(graph).error


def test_start_after_the_end(oldest):
    assert "start earlier" in oldest.run({"1": frames(), "2": score(["1", 0], start_frame=16)}).error


def test_a_thousand_frames(oldest):
    """Scored, drawn upon and shown beside others; the report is drawn on a single frame, too."""
    graph = {
        "1": frames(frames=1000, height=32, width=32),
        "2": score(["1", 0]),
        "3": look(["2", 1]),
        "4": overlay(["1", 0], ["2", 1], style="minimal"),
        "5": look(["4", 0]),
        "6": side_by_side(images_a=["1", 0], images_b=["8", 0], length="trim"),
        "7": look(["6", 1]),
        "8": frames(frames=1, height=32, width=32),
        "9": overlay(["8", 0], ["2", 1]),
        "10": look(["9", 0]),
    }
    result = oldest.run(graph).ok()
    assert report(result, "3")["frames"] == 1000
    shapes = [json.loads(result.text(number))["shape"] for number in ("5", "7", "10")]
    assert shapes[0] == [1000, 32, 32, 3] and shapes[1][0] == 1 and shapes[2] == [1, 32, 32, 3]


def test_more_than_fits_into_the_memory(oldest):
    graph = {"1": frames(frames=100_000, height=720, width=1280, kind="constant")}
    graph |= {"2": side_by_side(images_a=["1", 0], images_b=["1", 0]), "3": look(["2", 1])}
    assert "use fewer or smaller ones" in oldest.run(graph).error


def test_interrupt_ends_a_score(oldest):
    """Of a hundred thousand frames, which would take minutes; the next prompt runs."""
    graph = {"1": frames(frames=100_000, kind="constant"), "2": score(["1", 0])}
    with oldest.listening() as heard:
        prompt = oldest.queue(graph)
        while not any(kind == "progress" for kind, _ in heard):
            time.sleep(0.02)
        oldest.post("/interrupt", {})
        result = oldest.finished(prompt, 60)
    assert result.message("execution_interrupted") is not None
    assert max(about["value"] for kind, about in heard if kind == "progress") < 100_000
    oldest.run({"1": frames(), "2": score(["1", 0])}).ok()


def memory(server, name):
    """A line of the server's /proc status, in bytes."""
    lines = Path(f"/proc/{server.pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":"))


def test_memory_of_a_long_comparison(oldest):
    """129 frames of 720p beside each other: less than 1.2 times what comes out is taken on the way."""
    graph = {"1": frames(frames=129, height=720, width=1280, kind="constant"), "8": node("Test_Size", value=["1", 0])}
    oldest.run(graph).ok()
    graph["2"] = side_by_side(images_a=["1", 0], images_b=["1", 0])
    graph["8"] = node("Test_Size", value=["2", 1])
    before = memory(oldest, "VmRSS")
    with open(f"/proc/{oldest.pid}/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # VmHWM starts again from here
    result = oldest.run(graph).ok()
    size = json.loads(result.text("8"))["bytes"]
    assert size > 129 * 720 * 2560 * 3 * 4
    assert memory(oldest, "VmHWM") - before < 1.2 * size
    oldest.post("/free", {"unload_models": True, "free_memory": True})


def motion_filter(images, **inputs):
    settings = {"frames_per_video": 0, "fps": 8.0, "keep": "best", "count": 1, "max_loss": 0.5, "motion_class": "auto"}
    return own("MotionFilter", images=images, **{**settings, **inputs})


def test_best_of_n_keeps_the_moving_one(server):
    """Of a still video, noise and a square that moves evenly, the last wins."""
    graph = {
        "1": frames(speed=0.0),
        "2": frames(kind="noise"),
        "3": frames(speed=2.0),
        "4": node("Test_List", a=["1", 0], b=["2", 0], c=["3", 0]),
        "5": motion_filter(["4", 0]),
        "6": look(["5", 0], ["3", 0]),
        "7": look(["5", 3]),
    }
    result = server.run(graph).ok()
    assert json.loads(result.text("6"))["difference"] == 0.0
    about = {entry["video"]: entry for entry in json.loads(report(result, "7"))}
    assert [about[n]["kept"] for n in (1, 2, 3)] == [False, False, True] and not about[1]["moves"]


def test_filter_of_one_batch_and_nothing_kept(oldest):
    graph = {"1": frames(frames=16), "2": motion_filter(["1", 0], frames_per_video=8, keep="at most max_loss", max_loss=0.0)}
    graph["3"], graph["4"] = look(["2", 0]), look(["2", 3])
    result = oldest.run(graph).ok()
    assert "3" not in result.outputs and len(json.loads(report(result, "4"))) == 2
    graph["2"]["inputs"]["frames_per_video"] = 7
    assert "can't be cut" in oldest.run(graph).error


def test_filter_of_odd_videos(oldest):
    """Sizes, channels, number types and lengths may differ; one that can't be scored is named; no video at all is said."""
    graph = {
        "1": frames(channels=4, height=37, width=51, kind="half"),
        "2": frames(frames=9, speed=1.0),
        "3": frames(kind="nan"),
        "4": node("Test_List", a=["1", 0], b=["2", 0]),
        "5": motion_filter(["4", 0], count=5),
        "6": look(["5", 0]),
    }
    result = oldest.run(graph).ok()
    shapes = sorted(json.loads(text)["shape"] for text in result.outputs["6"]["text"])
    assert shapes == [[9, 48, 64, 3], [16, 37, 51, 4]]
    graph["4"]["inputs"]["c"] = ["3", 0]
    error = oldest.run(graph).error
    assert "video 3 of 3" in error and "NaN" in error
    graph["4"]["inputs"] = {}
    assert "Motion Filter has no video" in oldest.run(graph).error
    graph = {"1": node("Test_List"), "2": score(["1", 0])}  # ComfyUI itself can't call a node for each of none
    assert oldest.run(graph).status == "error"
    oldest.run({"1": frames(), "2": score(["1", 0])}).ok()


def test_a_file_scores_as_on_the_command_line(server):
    """LoadVideo decodes to floating point: a file's loss is that of `phys-pipeline score` but for rounding."""
    pictures = ImageBatch(moving(frames=24), 12.0)
    clip = write_video(server.base / "input" / "clip.mp4", [pictures[number] for number in range(24)], 12.0)
    graph = {"1": node("LoadVideo", file=clip.name), "2": score(video=["1", 0]), "3": look(["2", 1])}
    found, expected = report(server.run(graph).ok(), "3"), score_file(clip).to_dict()
    assert (found["frames"], found["fps"]) == (expected["frames"], pytest.approx(expected["fps"], rel=1e-4))
    assert found["loss"]["composite"] == pytest.approx(expected["loss"]["composite"], abs=2e-3)


def test_the_server_is_alive_after_all_this(oldest):
    oldest.run({"1": frames(), "2": score(["1", 0])}).ok()
