"""`phys-pipeline study` as a user meets it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from study_people import answer_all

from phys_pipeline.errors import ConfigError, DataError
from phys_pipeline.evaluation.study.analyse import read_key
from phys_pipeline.evaluation.study.command import main
from phys_pipeline.evaluation.study.session import Session, Study


def test_help_and_unknown_commands(capsys):
    assert main([]) == 0 and "study analyse" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="unknown command"):
        main(["open"])


def test_build_then_analyse(samples, tmp_path, capsys):
    folder = samples[0].path.parent.parent
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(
        "".join(json.dumps({"id": f"p{i}", "prompt": f"Prompt {i}", "stratum": "simple"}) + "\n" for i in range(4))
    )
    columns = [f"{name}={folder / name}" for name in ("baseline", "ours")]
    with pytest.raises(ConfigError, match="no prompt to show"):
        main(["build", *columns, "-o", str(tmp_path / "study")])
    assert main(["build", *columns, "--prompts", str(prompts), "-o", str(tmp_path / "study")]) == 0
    assert "keep it to yourself" in capsys.readouterr().out
    assert main(["analyse", str(tmp_path / "study")]) == 0
    assert "nothing can be said" in capsys.readouterr().out
    session = Session(Study(tmp_path / "study"), tmp_path / "study" / "answers.jsonl")
    key = read_key(tmp_path / "study.key.json")
    for _ in range(3):
        answer_all(session, key, lambda left, right: "left" if left["column"] == "ours" else "right")
    session.close()
    assert main(["analyse", str(tmp_path / "study"), "-o", str(tmp_path / "result")]) == 0
    out = capsys.readouterr().out
    assert "ours preferred to baseline: moves more plausibly" in out and "| all | 12 | 100.0 % |" in out
    assert (tmp_path / "result" / "analysis.md").read_text() == out.removesuffix("\n")
    found = json.loads((tmp_path / "result" / "analysis.json").read_text())
    assert found["preferences"][0]["stratum"]["simple"]["n"] == 12


def test_files_that_are_not_there_are_not_taken_for_an_empty_study(built, tmp_path):
    with pytest.raises(ConfigError, match="no such file of answers"):
        main(["analyse", str(built[0]), "--answers", str(tmp_path / "answer.jsonl")])
    with pytest.raises(ConfigError, match="holds no rows"):
        main(["analyse", str(built[0]), "--rows", str(tmp_path)])


def test_wrong_settings_are_one_line(built, tmp_path):
    answers = ["--answers", str(tmp_path / "answers.jsonl")]
    with pytest.raises(ConfigError, match="token needs 8"):
        main(["serve", str(built[0]), "--token", "short", *answers])
    with pytest.raises(DataError, match="study build"):
        main(["serve", str(tmp_path), *answers])
    with pytest.raises(ConfigError, match="--port"):
        main(["serve", str(built[0]), *answers, "--port", "70000"])


def test_serve_runs_until_it_is_interrupted(built, tmp_path):
    code = "import sys; from phys_pipeline.evaluation.study.command import main; sys.exit(main(sys.argv[1:]))"
    arguments = ["serve", str(built[0]), "--port", "0", "--answers", str(tmp_path / "answers.jsonl")]
    root = Path(__file__).resolve().parents[3]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a test run in the background ignores it
    )  # fmt: skip
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[1]
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, timeout=20) as reply:
            assert b"Taking part is voluntary" in reply.read()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 0 and errors.strip() == "stopped; the answers are kept"
    assert (tmp_path / "answers.jsonl").exists()
