"""The plan's sums."""

from __future__ import annotations

from types import SimpleNamespace

from training.experiments.config import Arm, Experiment
from training.experiments.cost import Cost, plan_text

ARMS = (
    Arm("plain", role="base_loss", settings={"objective": "none"}),
    Arm("mine", settings={"objective": "anchored"}, sweep={"motion_weight": [0.1, 1.0]}, candidate=True),
)


def test_columns_and_sweeps_add_up_and_a_long_one_is_pointed_out():
    prompts = {"validation": [0] * 32, "test": [0] * 128}
    runner = SimpleNamespace(experiment=Experiment(ARMS), prompts=prompts.get)
    costs = [
        Cost("plain", 1.0, 600.0, 480.0, 120.0),
        Cost("mine", 2.0, 6000.0, 480.0, 120.0),
        Cost("baseline", 0, 0, 480.0, 120.0),
    ]
    lines = plan_text(runner, costs).splitlines()
    plain, mine, base = (line.split() for line in lines[1:4])
    assert plain == ["plain", "1.00", "10.0", "8.0", "2.0", "20.0", "30.0", "12.5"]  # 3 seeds x 20 on two cores; 10 + a quarter
    assert mine[:8] == ["mine", "2.00", "100.0", "8.0", "2.0", "110.0", "165.0", "205.0"] and "over 40 minutes" in lines[2]
    assert base == ["baseline", "0.00", "0.0", "8.0", "2.0", "10.0", "15.0", "0.0"]
    assert f"{(3 * (20 + 110 + 10) + 12.5 + 205) / 60:.1f} hours of one thread" in lines[-1]
