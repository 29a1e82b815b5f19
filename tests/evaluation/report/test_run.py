"""A run says what a reader needs to repeat it."""

from __future__ import annotations

from datetime import datetime

import pytest

from phys_pipeline.errors import ConfigError
from phys_pipeline.evaluation.report.run import check_run, describe_run


def test_a_described_run_is_complete():
    run = describe_run("phys-pipeline evaluate x", seed=3, prompt_set="mine", split="split 1")
    check_run(run)
    assert datetime.fromisoformat(run["date"]).tzinfo is not None
    assert {"phys-pipeline", "python", "numpy", "torch"} <= set(run["versions"])
    assert run["prompts"] == {"set": "mine", "split": "split 1"} and run["seed"] == 3


def test_what_is_missing_is_named():
    run = describe_run("x")
    del run["seed"], run["device"]
    with pytest.raises(ConfigError, match="its device, seed;"):
        check_run(run)
