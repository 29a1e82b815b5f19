"""No column wins by moving less without the red line, and metrics that can be won that way are named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evaluation_clips import PLACES, scene
from evaluation_rows import INFOS, RUN, column_rows, info, plausible_values, row

from phys_pipeline.evaluation.controls import control_samples
from phys_pipeline.evaluation.evaluator import Evaluator
from phys_pipeline.evaluation.guards import RATIOS, RED_LINE, control_verdicts, gameable, motion_guard, warping_by_flow
from phys_pipeline.evaluation.metric import Settings
from phys_pipeline.evaluation.report import Column, build_report
from phys_pipeline.evaluation.sample import VideoSample
from phys_pipeline.evaluation.scores import collect
from phys_pipeline.media.synthetic import textured_clip

DESCRIBED = {metric.key: metric for metric in INFOS}
N = 40


def columns(first, second, infos=INFOS, **changes):
    found = collect([*column_rows("a", first), *column_rows("b", second, **changes)], infos)
    return found["a"], found["b"]


def guard(first, second, **changes):
    return motion_guard(*columns(first, second, **changes), DESCRIBED)


def test_a_frozen_column_draws_the_red_line_however_well_it_scores():
    found = guard(plausible_values(N), plausible_values(N, motion=0.0))
    assert found["red"] and found["line"].startswith(RED_LINE)
    assert found["checks"]["flow_score"]["value"] == 0 and "0.00 of the baseline's [0.00, 0.00]" in found["line"]
    assert found["checks"]["dynamic_degree"]["value"] < -50 and "dynamic degree changes by -" in found["line"]
    assert found["checks"]["temporal_energy"]["value"] == 0


def test_equal_motion_draws_none():
    found = guard(plausible_values(N), plausible_values(N, noise=1))
    assert not found["red"] and found["line"] == ""
    assert found["checks"]["flow_score"]["value"] == pytest.approx(1.0, abs=0.05)
    low, high = found["checks"]["flow_score"]["ci"]
    assert low < 1.0 < high and found["checks"]["flow_score"]["n"] == N


@pytest.mark.parametrize(("share", "red"), [(0.91, False), (0.89, True)])
def test_the_flow_ratio_has_its_limit_at_nine_tenths(share, red):
    flow = {"flow_score": [1.0, 2.0, 3.0]}
    assert guard(flow, {"flow_score": [share * x for x in flow["flow_score"]]})["red"] is red


def test_fast_clips_do_not_hide_that_the_others_were_slowed():
    before = [20.0] * 10 + [1.0] * 10
    found = guard({"flow_score": before}, {"flow_score": [20.0] * 10 + [0.5] * 10})
    checks = found["checks"]
    assert checks["flow_score"]["value"] > 0.97 and checks["typical_flow"]["value"] == pytest.approx(0.5**0.5)
    assert found["red"] and "the flow of a typical clip is 0.71 of the baseline's" in found["line"]
    assert checks["typical_flow"]["ci"][0] < 0.71 < checks["typical_flow"]["ci"][1] and checks["typical_flow"]["n"] == 20
    assert not guard({"flow_score": before}, {"flow_score": before[::-1]})["red"]  # other clips move, none less in sum
    assert guard({"flow_score": [1.0] * 9}, {"flow_score": [1.0] * 8 + [0.0]})["checks"]["typical_flow"]["value"] > 0.5


@pytest.mark.parametrize(("metric", "limit"), [("temporal_energy", 0.8), ("object_flow", 0.5), ("detail", 0.8)])
def test_what_blur_and_a_panned_still_lose_has_a_limit_too(metric, limit):
    infos = (*INFOS, info("object_flow", "neutral", low=0.0), info("detail", "neutral", low=0.0))
    for share, red in ((limit + 0.01, False), (limit - 0.01, True)):
        first, second = ({"flow_score": [1.0, 2.0], metric: [scale * 2.0, scale * 3.0]} for scale in (1.0, share))
        found = motion_guard(*columns(first, second, infos), {metric.key: metric for metric in infos})
        assert found["red"] is red and (f"is {share:.2f} of the baseline's" in found["line"]) is red
    assert not guard({"flow_score": [1.0]}, {"flow_score": [1.0]})["red"]  # not measured: the flow alone decides


@pytest.mark.parametrize(("lost", "red"), [(3, False), (4, True)])
def test_dynamic_degree_may_drop_by_three_points(lost, red):
    flow = [1.0] * 100
    found = guard(
        {"flow_score": flow, "dynamic_degree": [1.0] * 100},
        {"flow_score": flow, "dynamic_degree": [0.0] * lost + [1.0] * (100 - lost)},
    )
    assert found["red"] is red and found["checks"]["dynamic_degree"]["value"] == pytest.approx(-lost)


def test_points_do_not_depend_on_the_unit():
    percent = tuple(replace(metric, high=100.0) if metric.key == "active_share" else metric for metric in INFOS)
    flow = [1.0, 1.0]
    shares = guard({"flow_score": flow, "active_share": [1.0, 0.5]}, {"flow_score": flow, "active_share": [0.5, 0.5]})
    found = columns(
        {"flow_score": flow, "active_share": [100.0, 50.0]}, {"flow_score": flow, "active_share": [50.0, 50.0]}, percent
    )
    others = motion_guard(*found, {metric.key: metric for metric in percent})
    assert shares["checks"]["active_share"]["value"] == others["checks"]["active_share"]["value"] == pytest.approx(-25.0)


def test_unknown_motion_is_red_too():
    values = plausible_values(N)
    without = {key: value for key, value in plausible_values(N, motion=0.0).items() if key in ("clip_temporal", "warping_error")}
    found = guard(values, without)
    assert found["red"] and f"flow is known for 0 of {N} common clips (not evaluated)" in found["line"]
    nothing_moves = {**plausible_values(N, motion=0.0), "flow_score": [None] * N, "dynamic_degree": [None] * N}
    assert "(nothing moves)" in guard(values, nothing_moves)["line"]
    half = {**plausible_values(N), "flow_score": [1.0 if i % 2 else None for i in range(N)]}
    assert f"flow is known for {N // 2} of {N}" in guard(values, half)["line"]
    assert guard(values, plausible_values(N), status="standin")["red"]  # a stand-in's flow says nothing about the real one's


def test_no_common_clip_is_red():
    found = collect([row("a", "p0", "flow_score", 1.0), row("b", "p1", "flow_score", 1.0)], INFOS)
    assert motion_guard(found["a"], found["b"], DESCRIBED)["red"]


def test_a_baseline_that_stands_still_has_no_ratio():
    found = guard({"flow_score": [0.0, 0.0]}, {"flow_score": [1.0, 0.0]})
    assert found["checks"]["flow_score"]["reason"] == "nothing moves in the baseline" and not found["red"]


def test_less_warping_error_from_less_motion_is_gone_among_clips_that_move_alike():
    rng = np.random.default_rng(0)
    fast, slow = rng.uniform(1.0, 3.0, 200), rng.uniform(0.5, 2.5, 200)
    found = columns(
        {"flow_score": fast.tolist(), "warping_error": (1e-3 * fast).tolist()},
        {"flow_score": slow.tolist(), "warping_error": (1e-3 * slow).tolist()},
    )
    plain = 1e-3 * (slow.mean() - fast.mean())
    matched = warping_by_flow(*found)
    assert plain < -4e-4 and abs(matched["diff"]) < 0.35 * abs(plain)
    assert sum(b["n_first"] for b in matched["bins"]) == sum(b["n_second"] for b in matched["bins"]) == 200
    better = columns(
        {"flow_score": fast.tolist(), "warping_error": (1e-3 * fast).tolist()},
        {"flow_score": fast.tolist(), "warping_error": (1e-3 * fast - 2e-4).tolist()},
    )
    matched = warping_by_flow(*better)
    assert matched["diff"] == pytest.approx(-2e-4) and matched["ci"][0] <= -2e-4 <= matched["ci"][1] < 0


def test_bins_by_hand():
    first = {"flow_score": [1.0, 2.0, 3.0, 4.0], "warping_error": [0.1, 0.2, 0.3, 0.4]}
    second = {"flow_score": [1.0, 2.0, 3.0, 4.0], "warping_error": [0.1, 0.2, 0.3, 0.8]}
    bins = warping_by_flow(*columns(first, second))
    assert [(b["first"], b["second"]) for b in bins["bins"]] == [(0.1, 0.1), (0.2, 0.2), (0.3, 0.3), (0.4, 0.8)]
    assert bins["diff"] == pytest.approx(0.1)
    apart = warping_by_flow(*columns({**first, "flow_score": [9.0] * 4}, second))
    assert apart["diff"] is None and apart["reason"] == "the two columns share no range of flow"
    assert warping_by_flow(*columns({"warping_error": [0.1]}, second))["reason"] == "flow_score: not evaluated"
    other_clips = {"flow_score": [1.0, None], "warping_error": [None, 0.1]}
    assert warping_by_flow(*columns(other_clips, other_clips))["reason"] == "no clip has both flow_score and warping_error"


def test_verdicts_on_controls():
    directions = {"games": "down", "works": "up", "blind": "up", "noisy": "up", "neutral": "neutral", "gone": "up"}
    infos = {key: info(key, direction) for key, direction in directions.items()}
    rng = np.random.default_rng(0)
    real = {"games": [3.0, 4.0, 5.0], "works": [3.0, 4.0, 5.0], "blind": [1.0] * 3, "noisy": rng.normal(size=3).tolist(),
            "neutral": [1.0] * 3, "gone": [1.0] * 3}  # fmt: skip
    control = {"games": [0.1, 0.2, 0.3], "works": [0.1, 0.2, 0.3], "blind": [1.0] * 3,
               "noisy": [real["noisy"][0] + 1, real["noisy"][1] - 1, real["noisy"][2] + 0.1],
               "neutral": [9.0] * 3, "gone": [None] * 3}  # fmt: skip
    found = collect([*column_rows("real", real), *column_rows("control:frozen", control)], tuple(infos.values()))
    verdicts = control_verdicts(found["real"], {"control:frozen": found["control:frozen"]}, infos)
    assert {key: entry["control:frozen"]["verdict"] for key, entry in verdicts.items()} == {
        "games": "prefers", "works": "rejects", "blind": "blind", "noisy": "blind", "gone": "unknown",
    }  # fmt: skip
    assert gameable(verdicts) == {"games": ["control:frozen"]}
    assert verdicts["games"]["control:frozen"]["diff"] == pytest.approx(-3.8)
    assert verdicts["gone"]["control:frozen"]["reason"] == "nothing moves"
    rounding = {"games": [value * (1 - 1e-6) for value in real["games"]]}
    found = collect([*column_rows("real", real), *column_rows("control:reversed", rounding)], tuple(infos.values()))
    verdicts = control_verdicts(found["real"], {"control:reversed": found["control:reversed"]}, infos)
    assert verdicts["games"]["control:reversed"]["verdict"] == "blind"
    assert control_verdicts({}, {"control:reversed": found["control:reversed"]}, infos) == {}


def test_real_clips_that_were_frozen_win_warping_error_and_draw_the_red_line(tmp_path):
    pytest.importorskip("cv2")
    clips = []
    for number, velocity in enumerate([(1.5, 0.5), (-1.0, 1.0), (2.0, 0.0)]):
        video = textured_clip(8, 96, 128, velocity=velocity, seed=number).video
        frames = np.ascontiguousarray(video.permute(1, 2, 3, 0).numpy() * 255).round().astype(np.uint8)
        clips.append(VideoSample(f"p{number}", "baseline", frames=frames, fps=8.0))
    keys = ("warping_error", "flow_score", "dynamic_degree", "active_share", "temporal_energy", "temporal_flicker")
    evaluator = Evaluator(keys, Settings(flow="dis"), tmp_path)
    rows = evaluator.run([*clips, *control_samples(clips, ["frozen", "reversed"])])
    passed_off = [replace(r, model="ours", sample=f"ours/{r.id}") for r in rows if r.model == "control:frozen"]
    described = tuple(evaluator.infos.values())
    report = build_report([*rows, *passed_off], described, [Column("baseline"), Column("ours")], RUN)
    assert report["values"]["ours"]["warping_error"]["mean"] < report["values"]["baseline"]["warping_error"]["mean"]
    assert report["guards"]["ours"]["red"] and report["guards"]["ours"]["checks"]["flow_score"]["value"] < 0.1
    assert not report["guards"]["control:reversed"]["red"]
    gamed = report["controls"]["gameable"]
    assert "control:frozen" in gamed["warping_error"] and "control:frozen" in gamed["temporal_flicker"]


def test_cheats_that_keep_the_flow_or_blur_the_picture_draw_the_red_line(tmp_path):
    cv2 = pytest.importorskip("cv2")
    clips = {}
    for number, place in enumerate(("moving", "rotating", "jitter")):
        frames = scene(PLACES[place], half=64.0)[:6]
        big = np.pad(frames[0], ((0, 0), (0, 48), (0, 0)), mode="reflect")
        blur = [cv2.GaussianBlur(frame, (0, 0), 3.0) for frame in frames]
        cheats = {"real": frames, "panned": [big[:, 8 * t : 8 * t + 256] for t in range(6)], "blurred": blur}
        for name, pictures in cheats.items():
            clips[name, number] = VideoSample(f"p{number}", name, frames=np.stack(pictures), fps=8.0)
    evaluator = Evaluator(("warping_error", *RATIOS), Settings(flow="dis"), tmp_path)
    rows = evaluator.run(list(clips.values()))
    report = build_report(rows, list(evaluator.infos.values()), [Column("real"), Column("panned"), Column("blurred")], RUN)
    assert report["guards"]["panned"]["checks"]["flow_score"]["value"] > 1
    assert "flow beyond the camera's" in report["guards"]["panned"]["line"]
    assert report["values"]["blurred"]["warping_error"]["mean"] < report["values"]["real"]["warping_error"]["mean"]
    assert report["guards"]["blurred"]["checks"]["flow_score"]["value"] > 0.9
    assert "the detail is 0." in report["guards"]["blurred"]["line"]


@pytest.mark.parametrize(("still", "red"), [(3, False), (4, True)])
def test_clips_that_lost_their_plausibility_are_counted(still, red):
    flow = [1.0] * 100
    first = {"flow_score": flow, "plausibility": [0.5] * 100}
    found = guard(first, {"flow_score": flow, "plausibility": [None] * still + [0.6] * (100 - still)})
    assert found["lost"] == {"n": still, "of": 100} and found["red"] is red
    assert ("4 of 100 clips have no plausibility any more" in found["line"]) is red
    assert guard({"flow_score": flow}, {"flow_score": flow, "plausibility": [None] * 100})["lost"] == {"n": 0, "of": 0}
    broken = {"flow_score": flow, "plausibility": [None] * 100}
    assert not guard(first, broken, status="failed", reason="broken")["lost"]["n"]
