"""The example workflows of the pack: converted back they are the prompts they were made from, and they run."""

import json
import subprocess

import pytest
from examples import EXAMPLES, small
from graphs import autoencoder
from server import ROOT, output_file
from write_examples import TARGET, write_example_input

from phys_pipeline.media import read_video

_CONVERT = """
import json, sys
from comfy_cli.workflow_to_api import convert_ui_to_api
about = json.load(open(sys.argv[1]))
print(json.dumps([convert_ui_to_api(json.load(open(path)), about) for path in sys.argv[2:]]))
"""


@pytest.fixture(scope="module")
def converted(server, environment, tmp_path_factory):
    """The workflow files as prompts, by a converter that isn't ours."""
    write_example_input(server.base / "input")
    server.run(autoencoder()).ok()
    about = tmp_path_factory.mktemp("about") / "object_info.json"
    about.write_bytes(server.read("/object_info"))
    files = [str(TARGET / f"{name}.json") for name in EXAMPLES]
    python = environment / "validator" / "bin" / "python"
    run = subprocess.run([python, "-c", _CONVERT, about, *files], capture_output=True, text=True, check=True)
    return dict(zip(EXAMPLES, json.loads(run.stdout), strict=True))


def plain(graph):
    """What a prompt says, without the numbers that the pages give to nodes: classes with their values and links."""
    named = {number: (content["class_type"], json.dumps(_values(content), sort_keys=True)) for number, content in graph.items()}
    links = sorted(
        (named[value[0]], value[1], named[number], field)
        for number, content in graph.items()
        for field, value in content["inputs"].items()
        if _is_link(value)
    )
    return sorted(named.values()), links


def _values(content):
    """Values that aren't links; the pages write 18.0 as 18."""
    return {
        field: float(value) if isinstance(value, int) and not isinstance(value, bool) else value
        for field, value in content["inputs"].items()
        if not _is_link(value)
    }


def _is_link(value):
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_file_is_the_prompt(server, converted, name):
    if server.version != "0.30.0":  # an older server has other widgets in its own nodes; that they run is tested below
        return
    assert plain(converted[name]) == plain(EXAMPLES[name])


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_runs(server, converted, name):
    """With tiny models and few steps in place of real ones."""
    result = server.run(small(name, converted[name])).ok()
    saved = [
        entry for content in result.outputs.values() for entry in content.get("images", []) if entry["filename"].endswith(".mp4")
    ]
    assert len(saved) == 1
    video = read_video(output_file(server, saved[0]))
    assert len(video) >= 8 and video.frames.std() > 1


def test_pictures_are_small():
    for name in EXAMPLES:
        assert (TARGET / f"{name}.jpg").stat().st_size < 150_000
    assert (ROOT / "docs" / "images" / "comfyui.png").stat().st_size < 200_000
