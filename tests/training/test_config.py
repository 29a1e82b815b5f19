import subprocess
import sys
from pathlib import Path

import pytest

from phys_pipeline.errors import ConfigError
from training.config import OBJECTIVES, TrainConfig, load_config

CONFIGS = Path(__file__).parents[2] / "training" / "configs"


def test_example_files_are_valid():
    tiny = load_config(CONFIGS / "tiny.yaml")
    assert (tiny.frames, tiny.height, tiny.width, tiny.train_batch_size, tiny.max_train_steps) == (16, 64, 64, 2, 60)
    real = load_config(CONFIGS / "hunyuan_video.yaml")
    assert (real.frames - 1) % 4 == 0 and real.precision == "bf16"


def test_overrides_win_and_keep_their_types(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("rank: 4\nlearning_rate: 1e-4\n")  # PyYAML reads 1e-4 as text
    overrides = ["rank=8", "fps=12", "motion_overrides.patches=2", "motion_overrides.margin=0.1", "resume=true", "model=a=b"]
    config = load_config(file, overrides)
    assert (config.rank, config.learning_rate, config.fps, config.resume, config.model) == (8, 1e-4, 12.0, "true", "a=b")
    assert isinstance(config.fps, float)
    assert config.motion_overrides == {"patches": 2, "margin": 0.1}


def test_saved_file_reads_back_equal(tmp_path):
    overrides = ["shift=3", "motion_overrides.patches=1", "alpha=2.5", "gradient_checkpointing=true", "output_dir=út/x"]
    config = load_config(None, overrides)
    config.save(tmp_path / "c.yaml")
    assert load_config(tmp_path / "c.yaml") == config


def test_objectives_are_names_that_combine():
    assert TrainConfig().active == ("spectral",) and TrainConfig(motion_weight=0).active == ()
    assert load_config(None, ["objective=anchored,ltd"]).active == ("anchored", "ltd")
    assert load_config(None, ["objective=[preference, spectral]", "motion_weight=0"]).active == ("preference",)
    assert TrainConfig(objective=["none"]).active == () and TrainConfig(objective="none", frames=1).frames == 1
    assert TrainConfig(motion_form="anchored").active == ("anchored",)  # as it was said before there were several
    assert TrainConfig(motion_form="anchored", objective=["ltd"]).active == ("ltd",)
    everything = TrainConfig(objective=list(OBJECTIVES[:-1]), anchored_weight=0.0, repaired_weight=0.0)
    assert everything.active == ("spectral", "sampled", "coherence_weighted", "preference", "flow", "ltd")


def test_which_objectives_need_the_autoencoder():
    needs = {name: TrainConfig(objective=[name]).needs_vae for name in OBJECTIVES}
    assert [name for name, need in needs.items() if need] == [
        "spectral",
        "anchored",
        "repaired",
        "sampled",
        "coherence_weighted",
        "flow",
    ]
    latent = {name: TrainConfig(objective=[name], motion_space="latent").needs_vae for name in OBJECTIVES}
    assert [name for name, need in latent.items() if need] == ["flow"]
    assert TrainConfig(objective=["preference"], preference_space="pixel").needs_vae


def test_no_more_levels_are_corrected_than_the_sampler_has():
    with pytest.raises(ConfigError, match="sampled_levels=5 exceeds sampled_steps=4"):
        TrainConfig(sampled_levels=5, sampled_steps=4)


def test_a_crop_needs_pixels():
    with pytest.raises(ConfigError, match="need motion_space=pixel"):
        load_config(None, ["motion_space=latent", "motion_crop_frames=3"])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("motion_wieght=1", "unknown setting 'motion_wieght'; did you mean 'motion_weight'?"),
        ("rank", "'rank' is not an override; write key=value"),
        ("rank=two", "rank='two' should be a whole number"),
        ("rank=1.5", "rank=1.5 should be a whole number"),
        ("rank=true", "rank=True should be a whole number"),
        ("rank=0", "rank=0 must be greater than 0"),
        ("learning_rate=.nan", "should be a number"),
        ("learning_rate=.inf", "should be a number"),
        ("gradient_checkpointing=1", "should be true or false"),
        ("motion_space=pixels", "is not one of latent, pixel; did you mean 'pixel'?"),
        ("caption_dropout=1", "must lie in [0, 1)"),
        ("frames=2", "motion_weight needs at least 3 frames"),
        ("objective=spectrall", "objective: 'spectrall' is not one of spectral, anchored"),
        ("objective=[none, ltd]", "objective=none stands alone"),
        ("objective=ltd,ltd", "objective: ltd, ltd names one twice"),
        ("objective=[]", "objective is empty"),
        ("objective=3", "objective: '3' is not one of"),
        ("motion_terms=[translations]", "did you mean 'translation'?"),
        ("preference_corruptions=jitter", "preference_space=latent can only reverse, shuffle, stutter"),
        ("ltd_strength=2", "must lie in [0, 1]"),
        ("flow_sigma_max=1.5", "must lie in (0, 1]"),
        ("model.path=x", "unknown setting 'model.path'"),
        ("motion_overrides=3", "motion_overrides=3 should be a mapping"),
        ("frames=null", "frames=None should be a whole number"),
    ],
)
def test_mistakes_are_one_clear_line(override, message):
    with pytest.raises(ConfigError) as caught:
        load_config(None, [override])
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [("rank: [1", "not valid YAML"), ("- a\n", "expected `key: value`"), ("rnk: 3", "did you mean 'rank'")],
)
def test_bad_files(tmp_path, text, message):
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(file)
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="no such config file"):
        load_config(tmp_path / "missing.yaml")


def test_alpha_defaults_to_rank():
    assert TrainConfig(rank=12).lora_alpha == 12.0
    assert TrainConfig(rank=12, alpha=3).lora_alpha == 3.0


def test_reading_a_config_loads_no_torch():
    code = "import sys; from training.config import load_config; load_config(None); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=CONFIGS.parents[1]).returncode == 0


def test_lists_take_one_value_or_several_and_validation_settings_are_checked():
    assert load_config(overrides=["validation_prompts=[a, b]", "validation_seeds=3"]).validation_seeds == [3]
    for override, words in (
        ("validation_split=1.0", "must lie in"),
        ("ema_decay=1", "must lie in"),
        ("validation_seeds=[x]", "a whole number"),
        ("optimizer=adam", "did you mean"),
        ("num_epochs=0", "greater than 0"),
    ):
        with pytest.raises(ConfigError, match=words):
            load_config(overrides=[override])
    assert load_config(overrides=["rank=null"]).rank is None
