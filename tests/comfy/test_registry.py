"""The pack as the registry sees it, by its own tool."""

import json
import os
import re
import shutil
import subprocess
import zipfile

import pytest
from server import ROOT

LISTED = [
    ".comfyignore",
    "LICENSE",
    "README.md",
    "__init__.py",
    "pyproject.toml",
    "example_workflows/best_of_n.jpg",
    "example_workflows/best_of_n.json",
    "example_workflows/diffusers_ab.jpg",
    "example_workflows/diffusers_ab.json",
    "example_workflows/embedded_demo.jpg",
    "example_workflows/embedded_demo.json",
    "example_workflows/hunyuan_ab_native.jpg",
    "example_workflows/hunyuan_ab_native.json",
    "example_workflows/score_any_video.jpg",
    "example_workflows/score_any_video.json",
    "locales/en/nodeDefs.json",
    "locales/zh/nodeDefs.json",
    "nodes/__init__.py",
    "nodes/adapters.py",
    "nodes/clips.py",
    "nodes/demo.py",
    "nodes/hub.py",
    "nodes/lora.py",
    "nodes/motion_filter.py",
    "nodes/pipeline.py",
    "nodes/pipeline_sampler.py",
    "nodes/report.py",
    "nodes/running.py",
    "nodes/sampler.py",
    "nodes/schema.py",
    "nodes/score.py",
    "nodes/video.py",
    "web/docs/PhysMotion_ABSampler.md",
    "web/docs/PhysMotion_AdapterFromHub.md",
    "web/docs/PhysMotion_EmbeddedDemo.md",
    "web/docs/PhysMotion_LoadLoRA.md",
    "web/docs/PhysMotion_LoadPipeline.md",
    "web/docs/PhysMotion_MotionFilter.md",
    "web/docs/PhysMotion_PipelineABSampler.md",
    "web/docs/PhysMotion_PipelineLoRA.md",
    "web/docs/PhysMotion_ScoreOverlay.md",
    "web/docs/PhysMotion_ScoreReport.md",
    "web/docs/PhysMotion_SideBySide.md",
    "web/docs/PhysMotion_SpectralScore.md",
]


@pytest.fixture(scope="module")
def tool(environment, tmp_path_factory):
    """The registry's tool in a copy of the pack, within a repository of its own: it packs what git tracks."""
    folder = tmp_path_factory.mktemp("registry")
    pack = folder / "repository" / "comfy_nodes"
    tracked = subprocess.run(["git", "ls-files", "comfy_nodes"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in tracked.splitlines():
        (folder / "repository" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / "repository" / name)
    subprocess.run("git init -q . && git add -A", shell=True, cwd=folder / "repository", check=True)
    environ = {**os.environ, "HOME": str(folder), "DO_NOT_TRACK": "1"}

    def run(*arguments):
        command = [environment / "validator" / "bin" / "python", "-m", "comfy_cli", "--skip-prompt", *arguments]
        return pack, subprocess.run(command, cwd=pack, env=environ, capture_output=True, text=True)

    return run


def test_no_warning(tool):
    _, run = tool("node", "validate")
    said = run.stdout + run.stderr
    assert run.returncode == 0 and "warning" not in said.lower() and "error" not in said.lower(), said


def test_packed_files(tool):
    pack, run = tool("node", "pack")
    assert run.returncode == 0, run.stdout + run.stderr
    with zipfile.ZipFile(next(pack.glob("*.zip"))) as packed:
        assert sorted(packed.namelist()) == sorted(LISTED)


def test_only_the_publisher_is_missing(tool):
    """What the registry's tool would send: complete but for the publisher, without whom it sends nothing."""
    pack, run = tool("node", "publish", "--token", "none")
    said = run.stdout + run.stderr
    assert run.returncode == 1 and "Publisher ID is required" in said, said
    read = (
        "import json; from dataclasses import asdict; from comfy_cli.registry import config_parser as p;"
        "print(json.dumps(asdict(p.extract_node_configuration('pyproject.toml'))))"
    )
    python = run.args[0]
    found = subprocess.run([python, "-c", read], cwd=pack, capture_output=True, text=True, check=True).stdout
    about = json.loads(found.splitlines()[-1])
    project, comfy = about["project"], about["tool_comfy"]
    assert re.fullmatch(r"[a-z][a-z0-9-]{1,98}", project["name"]) and "comfyui" not in project["name"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", project["version"]) and len(project["description"]) > 40
    assert project["license"]["file"] == "LICENSE" and (pack / "LICENSE").is_file()
    assert project["dependencies"] == ["phys-pipeline>=0.1"] and project["supported_comfyui_version"] == ">=0.3.75"
    assert project["supported_os"] and project["supported_accelerators"]
    assert comfy["display_name"] == "PhysMotion" and (pack / comfy["web"] / "docs").is_dir() and comfy["publisher_id"] == ""
