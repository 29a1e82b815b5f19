"""The report against numbers by hand, against its schema, and against its own rows."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files

import jsonschema
import pytest
from evaluation_rows import COLUMNS, INFOS, RUN, column_rows, info, plausible_values, row

from phys_pipeline.errors import ConfigError, DataError
from phys_pipeline.evaluation.report.build import build_report, trace
from phys_pipeline.evaluation.report.columns import Column
from phys_pipeline.evaluation.statistics import cluster_bootstrap, holm, paired_difference, wilson

N = 24


def labels(index: int) -> dict[str, str]:
    return {"stratum": "complex" if index % 4 == 0 else "simple", "motion": ("translation", "rotation")[index % 2]}


@pytest.fixture(scope="module")
def rows():
    """Two columns and a control; one metric fails in places, one is a stand-in, one was computed in one column only."""
    made = column_rows("baseline", plausible_values(N), labels) + column_rows("ours", plausible_values(N, 1.1, noise=1), labels)
    made += column_rows("control:frozen", plausible_values(N, motion=0.0), labels)
    made = [replace(r, status="standin") if r.metric == "warping_error" else r for r in made]
    made[3] = replace(made[3], value=None, status="failed", reason="the file is broken")
    return [r for r in made if (r.model, r.metric) != ("ours", "sim2_residual")]


@pytest.fixture(scope="module")
def report(rows):
    return build_report(rows, INFOS, COLUMNS, RUN)


def schema():
    return json.loads(files("phys_pipeline.evaluation.report").joinpath("schema.json").read_text(encoding="utf-8"))


def test_the_report_fits_its_schema(report):
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(json.loads(json.dumps(report, allow_nan=False)), schema())
    broken = json.loads(json.dumps(report))
    broken["values"]["ours"]["plausibility"]["n"] = 0
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, schema())


def test_two_columns_and_three_metrics_by_hand():
    infos = (info("share", low=0.0, high=1.0), info("error", "down"), info("standin"))
    first = {"share": [1.0, 0.0, 1.0, 1.0], "error": [1.0, 2.0, 3.0, 6.0], "standin": [1.0, 1.0, 1.0, None]}
    second = {"share": [1.0, 1.0, 1.0, 1.0], "error": [0.0, 1.0, 2.0, 5.0], "standin": [2.0, 2.0, 2.0, 2.0]}
    rows = column_rows("a", first) + column_rows("b", second)
    rows = [replace(r, status="standin") if r.metric == "standin" and r.model == "b" else r for r in rows]
    report = build_report(rows, infos, [Column("a"), Column("b")], RUN)
    a, b = report["values"]["a"], report["values"]["b"]
    assert (a["share"]["mean"], a["share"]["n"], a["share"]["interval"]) == (0.75, 4, "wilson")
    assert a["share"]["ci"] == pytest.approx([0.3006, 0.9544], abs=1e-4) and b["share"]["ci"][0] == pytest.approx(
        0.5101, abs=1e-4
    )
    assert (a["error"]["mean"], b["error"]["mean"], a["error"]["status"]) == (3.0, 2.0, "ok")
    assert (a["standin"]["n"], b["standin"]["status"]) == (3, "standin")
    paired = report["paired"]["a"]["b"]
    assert paired["error"]["diff"] == -1.0 and paired["error"]["ci"] == [-1.0, -1.0] and paired["error"]["n"] == 4
    assert paired["error"]["p"] == 0.125 and paired["error"]["p_holm"] == 0.25 and paired["error"]["family"] == 2
    assert paired["share"]["diff"] == 0.25 and paired["share"]["p_holm"] == max(0.25, paired["share"]["p"])
    assert paired["standin"]["diff"] is None and "stand-in" in paired["standin"]["reason"]
    assert paired["standin"]["p_holm"] is None


def test_every_number_is_what_its_rows_give(report, rows):
    for column in ("baseline", "ours", "control:frozen"):
        for metric in report["metrics"]:
            mine = [r for r in rows if (r.model, r.metric) == (column, metric) and r.value is not None]
            cell = report["values"][column][metric]
            assert cell["n"] == len(mine)
            if not mine:
                continue
            traced = trace(report, column, metric)
            assert [(r["id"], r["seed"], r["value"]) for r in traced] == [(r.id, r.seed, r.value) for r in mine]
            values = [r["value"] for r in traced]
            assert cell["mean"] == pytest.approx(sum(values) / len(values), abs=1e-12)
            if cell["interval"] == "wilson":
                assert cell["ci"] == pytest.approx(wilson(sum(values), len(values)))
            else:
                assert cell["ci"] == pytest.approx(cluster_bootstrap([(r["id"], r["value"]) for r in traced]))
    for label, values in report["strata"].items():
        for value, found in values.items():
            for column, cells in found.items():
                for metric, cell in cells.items():
                    traced = [r["value"] for r in trace(report, column, metric, (label, value))] if cell["n"] else []
                    assert cell["n"] == len(traced)
                    assert not traced or cell["mean"] == pytest.approx(sum(traced) / len(traced))
    by = {(c, m): {(r["id"], r["seed"]): r["value"] for r in trace(report, c, m)} for c in ("baseline", "ours")
          for m in report["per_video"][c]}  # fmt: skip
    p = []
    for metric, entry in report["paired"]["baseline"]["ours"].items():
        if metric == "sim2_residual":
            assert (entry["n"], entry["reason"]) == (0, "not evaluated")
            continue
        found = paired_difference(by["baseline", metric], by["ours", metric])
        assert (entry["diff"], entry["ci"], entry["p"], entry["n"]) == (found.mean, list(found.interval), found.p, found.n)
        p.append(found.p)
        beside = {pair: v for pair, v in by["baseline", "plausibility"].items() if pair in by["baseline", metric]}
        assert entry["plausibility"]["diff"] == paired_difference(beside, by["ours", "plausibility"]).mean
    assert [e["p_holm"] for e in report["paired"]["baseline"]["ours"].values() if e["n"]] == holm(p)


def test_failed_clips_are_left_out_and_said(report):
    assert report["values"]["baseline"]["plausibility"]["n"] == N - 1
    assert {"column": "baseline", "metric": "plausibility", "status": "failed", "reason": "the file is broken", "n": 1,
            "clips": ["baseline/p003#0"]} in report["skipped"]  # fmt: skip
    assert {"column": "ours", "metric": "sim2_residual", "status": "skipped", "reason": "not evaluated", "n": 0,
            "clips": []} in report["skipped"]  # fmt: skip


def test_a_frozen_column_never_wins_without_the_red_line():
    rows = column_rows("baseline", plausible_values(N)) + column_rows("ours", plausible_values(N, motion=0.0))
    report = build_report(rows, INFOS, COLUMNS, RUN)
    assert report["paired"]["baseline"]["ours"]["warping_error"]["p_holm"] < 0.05  # it does win
    assert report["guards"]["ours"]["red"]


def test_controls_are_judged_on_the_baselines_clips(report):
    assert report["controls"]["of"] == "baseline" and set(report["controls"]["gameable"]) == {"clip_temporal", "warping_error"}
    assert report["guards"]["control:frozen"]["red"] and not report["guards"]["ours"]["red"]
    assert "control:frozen" not in report["paired"]["baseline"] and "control:frozen" not in report["strata"]["stratum"]["simple"]
    assert [c["role"] for c in report["columns"]] == ["baseline", "ours", "control"]


def test_a_baseline_named_later_still_comes_first_in_pairs():
    rows = column_rows("x", {"error": [1.0, 2.0]}) + column_rows("y", {"error": [2.0, 4.0]})
    report = build_report(rows, (info("error"),), [Column("x"), Column("y", role="baseline")], RUN)
    assert report["paired"]["y"]["x"]["error"]["diff"] == -1.5 and report["guards"]["x"]["baseline"] == "y"


def test_mismatched_columns_are_an_error_unless_allowed():
    rows = column_rows("baseline", {"plausibility": [0.5]}) + column_rows("ours", {"plausibility": [0.6]}, fps=24.0)
    with pytest.raises(DataError, match=r"16 frames, 8 fps and 64x48, 16 frames, 24 fps; make the clips alike"):
        build_report(rows, INFOS, COLUMNS, RUN)
    assert len(build_report(rows, INFOS, COLUMNS, RUN, allow_mismatch=True)["mismatches"]) == 1


def test_a_column_without_values_is_an_error_that_says_why():
    rows = column_rows("baseline", {"plausibility": [0.5, 0.6]})
    with pytest.raises(DataError, match="column ours has no rows"):
        build_report(rows, INFOS, COLUMNS, RUN)
    empty = column_rows("ours", {"plausibility": [None, None]}, status="failed", reason="no such file")
    with pytest.raises(DataError, match=r"column ours has n = 0.*no such file \(2 rows\)"):
        build_report([*rows, *empty], INFOS, COLUMNS, RUN)


def test_rows_that_do_not_fit_are_errors():
    rows = column_rows("baseline", {"plausibility": [0.5]}) + column_rows("ours", {"plausibility": [0.6]})
    with pytest.raises(DataError, match="rows of stranger, but no such column"):
        build_report([*rows, row("stranger", "p000", "plausibility", 0.1)], INFOS, COLUMNS, RUN)
    with pytest.raises(DataError, match="same id but different prompts"):
        build_report([*rows, row("ours", "p000", "flow_score", 0.1, prompt="another")], INFOS, COLUMNS, RUN)
    with pytest.raises(DataError, match="protocol fixed, the run says evalcrafter"):
        build_report(rows, INFOS, COLUMNS, {**RUN, "protocol": "evalcrafter"})
    with pytest.raises(ConfigError, match="different keys"):
        build_report(rows, INFOS, [COLUMNS[0], COLUMNS[0]], RUN)
    with pytest.raises(ConfigError, match="its date"):
        build_report(rows, INFOS, COLUMNS, {key: value for key, value in RUN.items() if key != "date"})


def test_prompts_have_a_digest_that_follows_their_text_and_not_their_order(report, rows):
    again = build_report(list(reversed(rows)), INFOS, COLUMNS, RUN)
    assert report["prompts"] == again["prompts"] and report["prompts"]["n"] == N
    assert report["prompts"]["set"] == "made up" and report["prompts"]["split"] == "made-up split"
    changed = build_report([replace(r, prompt=r.prompt + "!") for r in rows], INFOS, COLUMNS, RUN)
    assert changed["prompts"]["sha256"] != report["prompts"]["sha256"]


def test_what_the_report_lacks_can_not_be_traced(report):
    with pytest.raises(ConfigError, match="no metric 'vqa_a' of a column 'ours'"):
        trace(report, "ours", "vqa_a")
