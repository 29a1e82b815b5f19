import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from phys_pipeline.errors import ConfigError, DataError
from phys_pipeline.evaluation import evaluate_command
from phys_pipeline.evaluation.rows import read_rows
from phys_pipeline.evaluation.sample import VideoSample
from phys_pipeline.media import Video, corrupt, write_video
from phys_pipeline.media.synthetic import textured_clip

ROOT = Path(__file__).parents[2]
METRICS = "spectral_loss,sim2_jerk,warping_error,flow_score,dynamic_degree,clip_temporal"


@pytest.fixture(scope="module")
def columns(tmp_path_factory):
    """Three prompts, two columns: steady motion, and the same shaken."""
    root = tmp_path_factory.mktemp("columns")
    for index in range(3):
        clip = textured_clip(12, 64, 64, (1.0 + 0.5 * index, 0.5), seed=index).video
        write_video(root / "steady" / f"p{index}.mp4", Video.from_tensor(clip, 8))
        write_video(root / "shaken" / f"p{index}.mp4", Video.from_tensor(corrupt(clip[None], "jitter", 1.0, seed=index), 8))
    rows = [{"id": f"p{i}", "prompt": f"the texture moves right, take {i}", "direction": "right"} for i in range(3)]
    (root / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return root


def run(*arguments, **environment):
    command = [sys.executable, "-m", "phys_pipeline", "evaluate", *map(str, arguments)]
    settings = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"} | environment
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=settings, timeout=300)


@pytest.mark.slow
def test_the_documented_command_end_to_end(columns, tmp_path):
    sources = f"steady={columns / 'steady'}", f"shaken={columns / 'shaken'}"
    shown = run(*sources, "--prompts", columns / "prompts.jsonl", "--metrics", METRICS, "--controls", "frozen", "-o", tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "9 videos, 6 metrics: " in shown.stdout and "report.html" in shown.stdout
    report = json.loads((tmp_path / "report.json").read_text())
    values = report["values"]
    assert values["steady"]["spectral_loss"]["mean"] < values["shaken"]["spectral_loss"]["mean"]
    assert values["steady"]["sim2_jerk"]["mean"] < values["shaken"]["sim2_jerk"]["mean"]
    assert values["steady"]["warping_error"]["status"] == "standin" and values["steady"]["warping_error"]["n"] == 3
    assert values["steady"]["clip_temporal"]["n"] == 0 and "openai/clip" in values["steady"]["clip_temporal"]["reason"]
    assert report["guards"]["control:frozen"]["red"]  # nothing that stands still may win unseen
    rows = read_rows(tmp_path)
    assert values["steady"]["spectral_loss"]["mean"] == pytest.approx(
        sum(row.value for row in rows if row.model == "steady" and row.metric == "spectral_loss") / 3
    )
    with (tmp_path / "report.csv").open(newline="") as stream:
        assert len(list(csv.DictReader(stream))) >= len(rows)
    page = (tmp_path / "report.html").read_text()
    assert page.count("data:video/mp4") == 6 and "http" not in page.split("<body", 1)[1].split("data:video", 1)[0]

    before = (tmp_path / "rows.jsonl").read_bytes()
    strict = run(*sources, "--prompts", columns / "prompts.jsonl", "--metrics", METRICS, "--controls", "frozen", "-o", tmp_path,
                 "--strict")  # fmt: skip
    assert strict.returncode == 3 and (tmp_path / "rows.jsonl").read_bytes() == before


@pytest.mark.slow
def test_two_workers_and_two_launched_processes_report_what_one_does(columns, tmp_path):
    arguments = [
        f"steady={columns / 'steady'}",
        f"shaken={columns / 'shaken'}",
        "--metrics",
        "flow_score,sim2_jerk",
        "--controls",
        "none",
    ]
    assert run(*arguments, "-o", tmp_path / "one").returncode == 0
    assert run(*arguments, "-o", tmp_path / "workers", "--workers", "2").returncode == 0
    launched = [
        subprocess.Popen(
            [sys.executable, "-m", "phys_pipeline", "evaluate", *arguments, "-o", str(tmp_path / "ranks")], cwd=ROOT,
            env=os.environ | {"RANK": str(rank), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL,
        )
        for rank in range(2)
    ]  # fmt: skip
    assert [process.wait(timeout=200) for process in launched] == [0, 0]
    reports = [json.loads((tmp_path / name / "report.json").read_text()) for name in ("one", "workers", "ranks")]
    for report in reports:
        report.pop("run")
    assert reports[0] == reports[1] == reports[2]


def test_wrong_input_is_said_before_anything_is_measured(columns, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = f"a={columns / 'steady'}"
    (tmp_path / "columns.json").write_text('[{"key": "b"}]')
    cases = {
        ("nowhere",): (DataError, "neither a manifest"),
        (source, "--metrics", "speed"): (ConfigError, "no metric or group 'speed'"),
        (source, "--controls", "frosty"): (ConfigError, "--controls frosty: use auto, none or frozen"),
        (source, "--option", "x"): (ConfigError, "write KEY=VALUE"),
        (source, "--workers", "0"): (ConfigError, "at least 1"),
        (source, "--columns", "columns.json"): (ConfigError, "has the columns b, the videos are of a"),
        (source, "--columns", "none.json"): (ConfigError, "no list of columns"),
        (source, "--split", "none.json"): (DataError, "none.json"),
        (source, "--tables", "T9"): (ConfigError, "unknown table 'T9'"),
        (source, "--tables", "T1a"): (ConfigError, "T1a needs a column with the role 'ours'"),
        (f"baseline={columns / 'steady'}", f"ours={columns / 'shaken'}", "--tables", "T3"): (ConfigError, "stratum=complex"),
    }
    for arguments, (kind, message) in cases.items():
        with pytest.raises(kind, match=message):
            evaluate_command.main(arguments)
    assert not (tmp_path / "out").exists()


def test_columns_called_like_a_role_have_it_and_there_is_always_a_baseline():
    def roles(*models):
        return [column.role for column in evaluate_command._columns([VideoSample("p", m, path=Path("x")) for m in models], None)]

    assert roles("a", "b") == ["baseline", ""]
    assert roles("ours", "baseline", "base_loss") == ["ours", "baseline", "base_loss"]
    assert roles("base", "ours") == ["baseline", "ours"]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--metrics", "sim2_jerk,mask_mse,motion_accuracy"], 0),  # no reference, no label
        (["--metrics", "sim2_jerk,vqa_a"], 3),
        (["--metrics", "sim2_jerk,flow_score", "--flow", "dis", "--no-standins"], 3),
    ],
)
def test_strict_is_about_what_cannot_run_not_about_clips_without_labels(columns, tmp_path, options, code):
    fixed = ["--controls", "none", "-o", str(tmp_path), "--weights-dir", str(tmp_path), "--strict"]
    assert evaluate_command.main([f"a={columns / 'steady'}", *options, *fixed]) == code


def test_a_split_file_gives_strata(columns, tmp_path):
    from phys_pipeline.evaluation.manifest import read_samples
    from phys_pipeline.evaluation.prompts.prompt_set import Prompt, PromptSet
    from phys_pipeline.evaluation.prompts.rules import label_by_rules
    from phys_pipeline.evaluation.prompts.split import make_split

    samples = read_samples([f"a={columns / 'steady'}"], columns / "prompts.jsonl")
    prompts = PromptSet("three", tuple(Prompt(sample.id, sample.prompt) for sample in samples))
    make_split(prompts, lambda prompt: label_by_rules(prompt.text), "rules").write(tmp_path / "split.json")
    found = evaluate_command._stratified(samples, str(tmp_path / "split.json"))
    assert {sample.labels["stratum"] for sample in found} == {"simple"}
    assert {sample.labels["direction"] for sample in found} == {"right"}
    make_split(PromptSet("two", prompts.prompts[:2]), lambda prompt: label_by_rules(prompt.text), "rules").write(
        tmp_path / "two.json"
    )
    with pytest.raises(DataError, match="no label for the prompt of a/p2"):
        evaluate_command._stratified(samples, str(tmp_path / "two.json"))
