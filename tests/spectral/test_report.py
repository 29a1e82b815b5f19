import json
import math

import pytest
import torch

from phys_pipeline.media.synthetic import textured_clip
from phys_pipeline.spectral import SpectralConfig, SpectralMotionLoss, analyze
from phys_pipeline.spectral.composite import combine
from phys_pipeline.spectral.report import MotionAnalyser, analysis_size


@pytest.mark.parametrize(
    ("arguments", "dominant"),
    [
        ({"velocity": (1.5, 0.0)}, "translation"),
        ({"rotation": 0.08}, "rotation"),
        ({"zoom": -0.03}, "scaling"),
        ({}, "static"),
    ],
)
def test_dominant_motion_of_pure_motions(arguments, dominant):
    report = analyze(textured_clip(frames=24, seed=1, **arguments).video, fps=8)
    assert report.dominant == dominant
    assert report.is_static == (dominant == "static")


def test_units_are_per_second_of_the_original_clip():
    clip = textured_clip(frames=24, height=48, width=64, velocity=(1.5, -0.5), seed=2).video
    report = analyze(clip, fps=10, original_size=(480, 640)).to_dict()
    assert report["velocity"]["x_percent_per_s"] == pytest.approx(1.5 * 10 / 64 * 100, rel=0.05)
    assert report["velocity"]["y_px_per_s"] == pytest.approx(-0.5 * 10 * 10, rel=0.1)
    turning = analyze(textured_clip(frames=24, rotation=math.radians(3), seed=2).video, fps=10)
    assert turning.rotation_deg_per_s == pytest.approx(30, rel=0.05)
    growing = analyze(textured_clip(frames=24, zoom=0.02, seed=2).video, fps=10)
    assert growing.zoom_percent_per_s == pytest.approx(20, rel=0.1)


def test_thinning_a_fast_clip_keeps_its_speed():
    report = analyze(textured_clip(frames=60, velocity=(0.5, 0.0), seed=3).video, fps=36)
    assert report.velocity_px_per_s[0] == pytest.approx(18.0, rel=0.05)
    assert report.timeline[-1].end_s == pytest.approx(60 / 36)


def test_json_has_the_versioned_schema_and_only_plain_numbers():
    report = analyze(textured_clip(frames=40, velocity=(1, 0), seed=1).video, fps=8, source="clip.mp4").to_dict()
    assert report["schema"] == "phys-pipeline/motion-report" and report["version"] == 1
    again = json.loads(json.dumps(report, allow_nan=False))
    assert again == report
    assert set(report["loss"]) == {"composite", "translation", "rotation", "scaling", "pace", "coherence"}
    assert set(report["loss"]) <= set(report["timeline"][0])
    assert sum(report["weights"].values()) == pytest.approx(1.0, abs=1e-5)
    starts = [window["start_s"] for window in report["timeline"]]
    assert starts == sorted(starts) and report["timeline"][-1]["end_s"] == pytest.approx(report["duration_s"])


def test_analysis_size_keeps_the_aspect_and_never_enlarges():
    assert analysis_size(720, 1280) == (90, 160)
    assert analysis_size(64, 64) == (64, 64)
    assert analysis_size(2, 4000) == (1, 160)


@pytest.mark.parametrize("shape", [(3, 1, 20, 20), (3, 2, 20, 20), (3, 16, 2, 2), (3, 4, 1, 300)])
def test_tiny_clips_are_scored(shape):
    report = analyze(torch.rand(shape, generator=torch.Generator().manual_seed(0)), fps=8)
    json.dumps(report.to_dict(), allow_nan=False)
    assert (shape[1] > 1) or report.is_static


@pytest.mark.parametrize(
    ("video", "fps", "words"),
    [
        (torch.rand(16, 20, 20), 8, "one clip"),
        (torch.rand(2, 3, 16, 20, 20), 8, "one clip"),
        (torch.rand(3, 16, 20, 20), 0, "positive"),
        (torch.zeros(3, 16, 20, 20, dtype=torch.uint8), 8, "divide by 255"),
    ],
)
def test_wrong_input_is_refused(video, fps, words):
    with pytest.raises(ValueError, match=words):
        analyze(video, fps)


def test_paper_preset_is_available():
    assert analyze(textured_clip(velocity=(1, 0)).video, 8, config=SpectralConfig.paper()).preset == "paper"


def test_the_terms_of_the_composite_are_reported_unweighted():
    clip = textured_clip(velocity=(1, 0), seed=5).video
    order = torch.tensor([0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12, 14, 14])
    even, stutter = analyze(clip, 8), analyze(clip[:, order], 8)
    assert stutter.loss["pace"] > 1 > 0.2 > even.loss["pace"]
    assert even.timeline[0].coherence == pytest.approx(even.loss["coherence"])
    config = SpectralConfig.calibrated()
    slices = torch.tensor([[even.loss[name] for name in ("translation", "rotation", "scaling")]])
    free = combine(slices, config)[0].item()
    terms = config.pace_weight * even.loss["pace"] + config.coherence_weight * even.loss["coherence"]
    assert even.loss["composite"] == pytest.approx(free + terms, abs=0.05)  # patches are combined before they are averaged
    paper = analyze(clip, 8, config=SpectralConfig.paper())
    assert paper.loss["pace"] == paper.loss["coherence"] == 0


@pytest.fixture(scope="module")
def changing():
    """A clip whose brightness and contrast change from window to window, (3, 60, 32, 40); at 24 fps every second frame counts."""
    video = textured_clip(60, 32, 40, velocity=(0.6, -0.3), rotation=0.01, seed=4).video
    strength = 0.1 + 0.9 * torch.linspace(-1, 1, 60).square()
    return (0.5 + strength.view(1, -1, 1, 1) * (video - 0.5)) * torch.linspace(0.4, 1, 60).view(1, -1, 1, 1)


@pytest.mark.parametrize("config", [SpectralConfig.calibrated(), SpectralConfig.paper()])
def test_windows_scored_by_themselves_give_the_loss_of_the_whole_clip(changing, config):
    report = analyze(changing, fps=24, config=config)
    whole = SpectralMotionLoss(config)(changing[None, :, ::2], reduction="none")
    wanted = {"composite": whole.loss, **{name: getattr(whole, name) for name in ("translation", "rotation", "scaling")}}
    wanted |= {name: whole.diagnostics[name] for name in ("pace", "coherence")}
    assert report.loss == pytest.approx({name: float(value) for name, value in wanted.items()}, abs=1e-5)
    assert list(report.weights.values()) == pytest.approx(whole.weights[0].tolist(), abs=1e-5)
    assert report.dynamic_degree == pytest.approx(float(whole.diagnostics["dynamic_degree"]), abs=1e-5)
    assert [window.composite for window in report.timeline] == pytest.approx(whole.windows["composite"][0].tolist(), abs=1e-5)


@pytest.mark.parametrize("pieces", [[1] * 30, [7, 13, 10], [30], [29, 1]])
def test_frames_may_arrive_in_any_pieces(changing, pieces):
    analyser = MotionAnalyser(60, 24.0, (32, 40))
    assert analyser.step == 2
    for piece in changing[:, ::2].split(pieces, dim=1):
        analyser.push(piece)
    found, wanted = (report.to_dict() for report in (analyser.finish(), analyze(changing, fps=24)))
    assert found["loss"] == pytest.approx(wanted["loss"], abs=1e-6)  # windows are scored in other batches: rounding differs
    assert found["weights"] == pytest.approx(wanted["weights"], abs=1e-6) and found["velocity"] == pytest.approx(
        wanted["velocity"]
    )
    for one, other in zip(found["timeline"], wanted["timeline"], strict=True):
        assert one.pop("velocity") == pytest.approx(other.pop("velocity")) and one == pytest.approx(other, abs=1e-6)


def test_only_the_windows_being_filled_are_kept(changing):
    analyser = MotionAnalyser(3000, 12.0, (32, 40))
    most = 0
    for index in range(12):
        analyser.push(changing[:, (5 * index) % 50 :][:, :5])
        most = max(most, analyser._held.untyped_storage().nbytes())  # type: ignore[union-attr]
    assert most <= changing[:, : 16 + 8 + 5].nelement() * 4  # two windows, and what came with their last frame


def test_a_still_part_of_a_moving_clip_stays_still():
    moving = textured_clip(24, 32, 32, velocity=(1.0, 0.0), seed=1).video
    report = analyze(torch.cat([moving, moving[:, -1:].expand(-1, 24, -1, -1)], dim=1), fps=12)
    assert not report.is_static
    assert report.timeline[-1].composite == 0 and report.timeline[-1].dynamic_degree == 0
    assert report.timeline[0].dynamic_degree > 0.1


def test_the_announced_frames_must_be_given(changing):
    analyser = MotionAnalyser(40, 12.0, (32, 40))
    analyser.push(changing[:, :20])
    with pytest.raises(ValueError, match="20 frames were given, but 40"):
        analyser.finish()
    with pytest.raises(ValueError, match="50 frames were given, but 40"):
        analyser.push(changing[:, :30])
    for wrong in (changing[0], changing[:, :0], (changing[:, :2] * 255).to(torch.uint8)):
        with pytest.raises(ValueError, match=r"frames|divide by 255"):
            analyser.push(wrong)
    with pytest.raises(ValueError, match="at least one frame"):
        MotionAnalyser(0, 12.0, (32, 40))
