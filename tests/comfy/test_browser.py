"""The real pages: an example opens from the template list, nodes have names, tooltips and help, it runs, the video plays."""

import json

import pytest
from browser import EXECUTABLE, Page
from pages import fit, point_at, ready, wait_for_video
from server import PACK


@pytest.fixture(scope="module")
def page(newest, tmp_path_factory):
    if EXECUTABLE is None:
        pytest.skip("no Chromium here")
    with Page(tmp_path_factory.mktemp("profile"), 1600, 1000) as page:
        ready(page, newest)
        yield page


def text(page):
    return page.evaluate("document.body.innerText")


def test_an_example_runs_in_the_pages(newest, page):
    """Opened, as the template list opens it; queued by the page's own button function; the saved video shows in its node."""
    workflow = newest.get(f"/api/workflow_templates/{PACK}/embedded_demo.json")
    page.evaluate(f"window.app.loadGraphData({json.dumps(workflow)}, true, true, 'embedded_demo')")
    page.wait("window.app.graph._nodes.some(node => node.type === 'PhysMotion_EmbeddedDemo')")
    titles = page.evaluate("window.app.graph._nodes.map(node => node.title)")
    assert {"Embedded Demo", "Motion Spectral Score", "Side-by-Side Video", "Score Report"} <= set(titles)
    assert not page.evaluate("window.app.graph._nodes.some(node => node.has_errors)")
    page.evaluate(
        "(() => { for (const [name, value] of [['steps', 4], ['count', 2]]) window.app.graph._nodes"
        ".find(n => n.type === 'PhysMotion_EmbeddedDemo').widgets.find(w => w.name === name).value = value; })()"
    )
    page.evaluate("window.app.queuePrompt(0)")
    wait_for_video(page, "SaveVideo", 600)
    assert not [line for line in page.console if "physmotion" in line.lower() or "PhysMotion" in line]


def test_names_and_tooltips_are_in_the_pages(page):
    """The definitions that the pages draw names and tooltips from; and one that appears below the mouse."""
    about = page.evaluate(
        "(() => { const data = LiteGraph.registered_node_types['PhysMotion_LoadLoRA'].nodeData; return {title: data.display_name,"
        " description: data.description, tip: data.input.required.strength[1].tooltip}; })()"
    )
    assert about["title"] == "Load Motion LoRA"
    assert "whatever program saved it" in about["description"] and "0 leaves the model" in about["tip"]
    fit(page)
    page.evaluate("new Promise(done => setTimeout(done, 500))")
    assert "calibrated is what comparisons use" not in text(page)
    point_at(page, "PhysMotion_SpectralScore", "preset")
    page.wait("document.body.innerText.includes('calibrated is what comparisons use')", 60)


def test_help_opens(page):
    """The help of the selected node, which the pages read from the pack."""
    page.evaluate(
        "(() => { const node = window.app.graph._nodes.find(n => n.type === 'PhysMotion_SpectralScore');"
        " window.app.canvas.selectNode(node); })()"
    )
    page.evaluate("new Promise(done => setTimeout(done, 500))")
    button = 'document.querySelector(\'[data-testid="info-button"], .help-button, button[aria-label*="Info"]\')'
    page.wait(f"!!{button}")
    page.evaluate(f"{button}.click()")
    page.wait("document.body.innerText.includes('no more than 160 pixels')")
    assert "the motion loss: 0 is coherent" in text(page)


def test_chinese(newest):
    assert newest.get("/i18n")["zh"]["nodeDefs"]["PhysMotion_LoadLoRA"]["display_name"] == "加载运动 LoRA"
