import pytest

from phys_pipeline.errors import ConfigError
from training.config import load_config
from training.train_lora import parse


def test_nested_and_flat_spelling_are_one(tmp_path):
    assert load_config(None, ["lora=null"]).rank is None
    nested, flat = tmp_path / "nested.yaml", tmp_path / "flat.yaml"
    nested.write_text("lora: {rank: 8, alpha: 4, targets: to_q}\nseed: 3\n")
    flat.write_text("rank: 8\nalpha: 4\nlora_targets: to_q\nseed: 3\n")
    config = load_config(nested)
    assert config == load_config(flat) == load_config(None, ["lora.rank=8", "lora.alpha=4", "lora.targets=to_q", "seed=3"])
    config.save(tmp_path / "saved.yaml")
    assert load_config(tmp_path / "saved.yaml") == config
    assert (
        parse(["--config", str(nested), "lora=null"])[0].rank is None
    )  # the command line wins over the file, in either spelling
    assert load_config(flat, ["lora.rank=2"]).rank == 2 and load_config(nested, ["rank=2"]).rank == 2
    assert load_config(nested, ["lora.rank=2"]).lora_targets == "to_q"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["lora=null", "rank=8"], "lora.rank=None and rank=8 contradict"),
        (["lora={alpha: 4}", "alpha=5"], "lora.alpha=4 and alpha=5 contradict"),
        (["lora=false"], "should be null .* or a mapping of rank, alpha, targets"),
        (["lora={}"], "should be null"),
        (["lora={ranks: 3}"], "should be null"),
        (["lora.rank.x=3"], "only motion_overrides.NAME and lora.NAME take a dot"),
    ],
)
def test_contradictions_and_unknown_names_are_refused(overrides, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        load_config(None, overrides)
    file = tmp_path / "both.yaml"
    file.write_text("lora: {rank: 8}\nrank: 4\n")
    with pytest.raises(ConfigError, match="contradict each other: keep one"):
        load_config(file)


def test_the_same_value_twice_is_no_contradiction():
    assert load_config(None, ["lora={rank: 8}", "rank=8"]).rank == 8
