"""Every objective trains for two steps through the script, on latents and on decoded pixels, and says in the log what it did."""

import math
from pathlib import Path

import pytest
from training_run import ADAPTER, make_base, records

from training.config import OBJECTIVES
from training.train_lora import main

CONFIG = Path(__file__).parents[3] / "training" / "configs" / "tiny.yaml"
TERMS = {"spectral", "anchored", "repaired", "flow", "preference", "sampled"}  # the others weigh the denoising loss
pytestmark = [pytest.mark.usefixtures("fresh_accelerate_state"), pytest.mark.slow]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make_base(tmp_path_factory.mktemp("base"), clips=2, frames=13)  # 4 latent frames, of which 3 are scored


@pytest.mark.parametrize(
    ("objective", "space"),
    [(name, space) for name in OBJECTIVES for space in ("latent", "pixel") if (name, space) != ("flow", "latent")],
)
def test_two_steps(objective, space, base, tmp_path):
    if objective == "flow":
        pytest.importorskip("cv2")
    weights = [f"{name}_weight=0.1" for name in ("motion", "flow", "preference")]
    arguments = [
        "--config", str(CONFIG), f"model={base / 'model'}", f"data={base / 'clips'}", f"cache_dir={base / 'cache'}",
        f"output_dir={tmp_path}", "frames=13", "height=16", "width=16", "rank=2", f"objective={objective}", *weights,
        f"motion_space={space}", f"preference_space={space}", "flow_estimator=dis", "sigma_max=1", "flow_sigma_max=1",
        "repaired_sigma_max=1", "frame_extraction=middle", "max_train_steps=2", "gradient_ratio_every=1", "checkpoint_every=0",
        "trackers=[]", "lr_warmup_steps=0", "shift=1", "motion_form=absolute",
    ]  # fmt: skip
    assert main(arguments) == 0
    assert (tmp_path / ADAPTER).is_file()
    first, second = records(tmp_path)
    for record in (first, second):
        assert math.isfinite(record["denoising"]) and math.isfinite(record["gradient_norm"]) and record["gradient_norm"] > 0
        assert record["motion_skipped"] == 0 and record["motion_energy_ratio"] > 0
        assert (record["gradient_ratio"] is not None) == (objective in TERMS)
        assert (record["motion_share"] >= 0.5) == (objective in {"spectral", "anchored", "repaired"})
        assert (record["denoising_weighted"] is not None) == (objective in {"coherence_weighted", "ltd"})
        named = {"spectral": "motion", "anchored": "motion", "repaired": "motion"}.get(objective, objective)
        assert (named in record and math.isfinite(record[named])) == (objective in TERMS)
        assert record.get(f"{named}_share", 0.0) >= 0.5 if objective in TERMS else f"{objective}_share" not in record
    assert first["denoising"] != second["denoising"]


def test_a_decoder_that_recomputes_its_activations_gives_the_same_gradients(base, tmp_path):
    norms = []
    for again in ("true", "false"):
        arguments = [
            "--config", str(CONFIG), f"model={base / 'model'}", f"data={base / 'clips'}", f"cache_dir={base / 'cache'}",
            f"output_dir={tmp_path / again}", "frames=13", "height=16", "width=16", "rank=2", "motion_form=absolute", "shift=1",
            "motion_weight=10", "frame_extraction=middle", "max_train_steps=1", "trackers=[]", "sigma_max=1",
            f"gradient_checkpointing={again}", "gradient_ratio_every=1",
        ]  # fmt: skip
        assert main(arguments) == 0
        (record,) = records(tmp_path / again)
        norms.append((record["gradient_norm"], record["gradient_ratio"], record["motion"]))
    assert norms[0] == pytest.approx(norms[1], rel=1e-5) and norms[0][1] > 0
