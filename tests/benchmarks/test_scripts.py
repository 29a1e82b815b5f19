"""Every benchmark starts from any folder, as its docstring says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.py") if '__name__ == "__main__"' in path.read_text(encoding="utf-8"))


def test_there_are_scripts():
    assert {"discrimination.py", "gradient_test.py", "loss_cost.py"} <= set(SCRIPTS)


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_is_shown(script, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    answer = subprocess.run(
        [sys.executable, str(FOLDER / script), "--help"], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("usage:") and script in answer.stdout
