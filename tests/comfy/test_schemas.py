"""What the servers list: every node, with names, descriptions, tooltips, help and translations."""

import json
from pathlib import Path

import pytest
from server import PACK

ROOT = Path(__file__).resolve().parents[2]
TEXTS = json.loads((ROOT / "comfy_nodes" / "locales" / "en" / "nodeDefs.json").read_text(encoding="utf-8"))
NODES = sorted(TEXTS)


@pytest.fixture(scope="module")
def listed(server):
    return server.get("/object_info")


def test_every_node_loads(listed):
    assert sorted(name for name in listed if name.startswith("PhysMotion_")) == NODES
    assert len(NODES) == 12


@pytest.mark.parametrize("name", NODES)
def test_texts(listed, name):
    about = listed[name]
    assert about["display_name"] == TEXTS[name]["display_name"]
    assert len(about["description"]) > 40
    assert about["category"].startswith("PhysMotion")
    inputs = {**about["input"].get("required", {}), **about["input"].get("optional", {})}
    assert set(inputs) == set(TEXTS[name]["inputs"])
    for field, (_, options) in inputs.items():
        assert options["tooltip"] == TEXTS[name]["inputs"][field]["tooltip"] and options["tooltip"].endswith("."), field
    assert len(about["output"]) == len(about["output_tooltips"]) == len(TEXTS[name]["outputs"])
    assert all(about["output_tooltips"])


@pytest.mark.parametrize("name", NODES)
def test_help_page(server, name):
    page = server.read(f"/extensions/{PACK}/docs/{name}.md").decode()
    assert page.startswith(f"# {TEXTS[name]['display_name']}\n")
    for field in TEXTS[name]["inputs"]:
        assert f"`{field}`" in page, f"{name}'s help does not explain {field}"


def test_translations(server):
    served = server.get("/i18n")
    for language in ("en", "zh"):
        assert set(NODES) <= set(served[language]["nodeDefs"]), language


def test_example_workflows_are_offered_with_pictures(server):
    offered = server.get("/workflow_templates")[PACK]
    assert sorted(offered) == ["best_of_n", "diffusers_ab", "embedded_demo", "hunyuan_ab_native", "score_any_video"]
    for name in offered:
        assert server.read(f"/api/workflow_templates/{PACK}/{name}.jpg")[:3] == b"\xff\xd8\xff"
