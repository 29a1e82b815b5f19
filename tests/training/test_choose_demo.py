import json

import pytest

from phys_pipeline.errors import DataError
from training.choose_demo import COLUMNS, METRICS, choose, main


def values(**prompts):
    """Each prompt: (jerk, direction right, flow) of the baseline and of physics."""
    return {
        (column, name, metric): value
        for name, both in prompts.items()
        for column, numbers in zip(COLUMNS, both, strict=True)
        for metric, value in zip(METRICS, numbers, strict=True)
    }


def test_the_largest_fall_of_jerk_is_chosen_among_those_that_move_as_asked_and_as_much():
    measured = values(
        wrong=((1.0, 0.0, 1.0), (0.1, 1.0, 1.0)),
        slower=((1.0, 1.0, 1.0), (0.1, 1.0, 0.9)),
        good=((1.0, 1.0, 1.0), (0.5, 1.0, 0.96)),
        better=((2.0, 1.0, 1.0), (0.8, 1.0, 1.2)),
        worse=((1.0, 1.0, 1.0), (1.5, 1.0, 1.0)),
    )
    assert choose(["wrong", "slower", "unmeasured", "good", "better", "worse"], measured) == ("better", 3)


def test_nothing_to_choose_is_said():
    with pytest.raises(DataError, match="none of 2 prompts"):
        choose(["slower", "unmeasured"], values(slower=((1.0, 1.0, 1.0), (0.1, 1.0, 0.9))))


@pytest.mark.slow
def test_pairs_are_made_measured_and_one_is_written_down(tmp_path, capsys):
    from phys_pipeline.adapters.embedded import embedded_adapters

    if not embedded_adapters():
        pytest.skip("no adapter comes with this version's embedded model")
    prompts = tmp_path / "validation.jsonl"
    row = {"stratum": "simple", "motion": "translation"}
    asked = [{"id": name, "prompt": f"a red square moves {name}", "direction": name, **row} for name in ("right", "left")]
    prompts.write_text("".join(json.dumps(prompt) + "\n" for prompt in asked))
    output = tmp_path / "demo.json"
    arguments = ["--adapter", str(next(iter(embedded_adapters().values())).folder), "--prompts", str(prompts)]
    code = main([*arguments, "--output", str(output)])
    if code == 2:
        assert "nothing to choose" in capsys.readouterr().err and not output.exists()
        return
    chosen = json.loads(output.read_text())
    assert code == 0 and chosen["id"] in ("right", "left") and chosen["prompts"] == 2 and chosen["seed"] == 0
    assert chosen["measured"]["direction_accuracy"] == {"baseline": 1.0, "physics": 1.0}
