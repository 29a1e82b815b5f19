"""Train, publish, fetch into an empty cache, generate in a new process: the same video to the bit; and what the card tells people
to do works as it stands there."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hub_server import HubServer
from hub_server.server import TOKEN
from training_run import make_base

from phys_pipeline.adapters import load_adapter
from phys_pipeline.adapters.readers import open_adapter
from phys_pipeline.families import load_model
from phys_pipeline.media import read_video
from phys_pipeline.pipelines.ab import generate

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
NAME, BASE = "owner/physics", "lab/tiny-video"
UPLOAD = "import sys, huggingface_hub as h; a = h.HfApi(); a.create_repo(sys.argv[1]); a.upload_folder(repo_id=sys.argv[1], " \
    "folder_path=sys.argv[2])"  # fmt: skip
TRAIN = [
    f"model={BASE}", "frames=5", "height=16", "width=16", "rank=2", "precision=fp32", "shift=1.0", "learning_rate=0.05",
    "lr_warmup_steps=1", "max_train_steps=3", "checkpoint_every=0", "trackers=[]", "train_batch_size=1", "validation_split=0.4",
    "validation_prompts=[a ball rolls]",
]  # fmt: skip
GENERATE = """
import sys
from phys_pipeline.adapters import load_adapter
from phys_pipeline.families import load_model
from phys_pipeline.pipelines.ab import generate
model = load_model(sys.argv[1])
info = load_adapter(model, sys.argv[2])
open(sys.argv[3], "wb").write(generate(model, "a ball rolls", 0).frames.tobytes())
print(info.path)
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A Hub with a base model, and an adapter that the trainer put there itself at the end of its run."""
    root = tmp_path_factory.mktemp("world")
    make_base(root)
    with HubServer(root / "server") as server:
        child(server, root, "trainer", "-c", UPLOAD, BASE, str(root / "model"))
        places = [f"data={root / 'clips'}", f"cache_dir={root / 'cache'}", f"output_dir={root / 'run'}"]
        script = str(ROOT / "training" / "train_lora.py")
        done = child(server, root, "trainer", script, *TRAIN, *places, "--push-to-hub", NAME, ACCELERATE_USE_CPU="true")
        assert f"published {NAME}@" in done.stdout and TOKEN not in done.stdout + done.stderr, done.stderr
        yield server, root


def child(server, root, home, *arguments, **environment):
    own = {**os.environ, **server.environment(root / home), **environment, "OMP_NUM_THREADS": "1"}
    own["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=own, cwd=root, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done


def code(server, language):
    return re.findall(rf"```{language}\n(.*?)\n```", server.read(NAME, "README.md").decode(), re.DOTALL)


def test_a_fetched_adapter_makes_the_trained_models_video_to_the_bit(world, tmp_path):
    server, root = world
    done = child(server, root, "empty", "-c", GENERATE, BASE, NAME, str(tmp_path / "fetched"))
    assert str(root / "empty") in done.stdout  # out of the new cache, not the run's folder
    model = load_model(str(root / "model"))
    plain = generate(model, "a ball rolls", 0).frames
    load_adapter(model, root / "run")
    trained = generate(model, "a ball rolls", 0).frames
    assert (tmp_path / "fetched").read_bytes() == trained.tobytes() and not np.array_equal(trained, plain)
    validated = read_video(root / "run" / "validation" / "step-3" / "prompt-0-seed-0.mp4")
    assert len(validated.frames) == len(trained)


def test_the_record_has_licence_fingerprint_and_scores_with_intervals(world):
    server, root = world
    about = json.loads(server.read(NAME, "provenance.json"))
    assert about["base_model"] == BASE and about["license"]["license_name"] == "tencent-hunyuan-community"
    assert about["data"] and about["scores"]["step"] == 3
    measures = {measure["name"]: measure for measure in about["scores"]["measures"]}
    assert measures["denoising loss, held-out clips"]["n"] == 1 and measures["motion loss, generated videos"]["unit"] == "videos"
    for measure in measures.values():
        assert measure["difference"] == pytest.approx(measure["trained"] - measure["base"], abs=2e-6)
    inside = open_adapter(root / "run" / "pytorch_lora_weights.safetensors").provenance
    assert inside["scores"] == about["scores"] and inside["license"] == about["license"] and inside["data"] == about["data"]
    assert server.repo(NAME).private


def test_the_cards_diffusers_snippet_runs(world, tmp_path):
    server, _ = world
    (snippet,) = code(server, "python")
    assert f'"{NAME}"' in snippet and "weight_name" in snippet
    (tmp_path / "snippet.py").write_text(snippet)
    child(server, tmp_path, "home", str(tmp_path / "snippet.py"))
    assert len(read_video(tmp_path / "video.gif").frames) == 5


def test_the_cards_shell_snippets_run(world, tmp_path):
    server, _ = world
    commands = [shlex.split(command) for command in code(server, "sh")]
    assert [command[0] for command in commands] == ["phys-pipeline", "hf"]
    child(server, tmp_path, "home", "-m", "phys_pipeline", *commands[0][1:])
    assert len(read_video(tmp_path / "generated.mp4").frames) == 5
    child(server, tmp_path, "home", "-m", "huggingface_hub.cli.hf", *commands[1][1:])
    file = tmp_path / "ComfyUI" / "models" / "loras" / "comfyui" / "run.safetensors"
    assert file.read_bytes() == server.read(NAME, "comfyui/run.safetensors")
