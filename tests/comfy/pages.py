"""ComfyUI's real pages in Chromium."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from browser import Page
from graphs import Graph
from PIL import Image
from server import Server

_FIT = """(() => {
    const app = window.app, box = app.canvas.canvas.getBoundingClientRect();
    let left = 1e9, top = 1e9, right = -1e9, bottom = -1e9;
    for (const node of app.graph._nodes) {
        left = Math.min(left, node.pos[0]); top = Math.min(top, node.pos[1] - 40);
        right = Math.max(right, node.pos[0] + node.size[0]); bottom = Math.max(bottom, node.pos[1] + node.size[1]);
    }
    const scale = Math.min((box.width - 160) / (right - left), (box.height - 180) / (bottom - top), 1.0);
    app.canvas.ds.scale = scale;
    app.canvas.ds.offset = [90 / scale - left, 140 / scale - top];
    app.canvas.setDirty(true, true);
    const width = (right - left) * scale, height = (bottom - top) * scale;
    return [box.left + 90, box.top + 140, box.left + 90 + width, box.top + 140 + height];
})()"""

_QUIET = {
    "Comfy.TutorialCompleted": True, "Comfy.InstalledVersion": "9.9.9", "Comfy.Workflow.ShowMissingModelsWarning": False,
    "Comfy.Minimap.Visible": False, "Comfy.Graph.CanvasInfo": False,
    "LiteGraph.Canvas.MinFontSizeForLOD": 0,  # letters at any zoom
}  # fmt: skip
_ROOM = {  # for what they show once they have run
    "PhysMotion_SpectralScore": [250, 500], "PhysMotion_ScoreReport": [340, 500], "PhysMotion_EmbeddedDemo": [280, 260],
    "PhysMotion_MotionFilter": [300, 320], "SaveVideo": [560, 420],
}  # fmt: skip
_VIDEOS = """((type) => {
    const node = window.app.graph._nodes.find(node => node.type === type);
    const parts = [node.videoContainer, ...(node.imgs || []), ...(node.widgets || []).map(widget => widget.element)];
    const videos = parts.filter(Boolean).flatMap(part => part.tagName === 'VIDEO' ? [part] : [...part.querySelectorAll('video')]);
    return videos.filter(video => video.readyState >= 2 && video.videoWidth > 0).length;
})"""


def ready(page: Page, server: Server) -> None:
    """Open the pages and wait until they can take a graph; no tour, no template gallery."""
    server.post("/settings", _QUIET)
    page.open(server.url)
    page.wait("!!(window.app && window.app.graph && window.app.canvas && window.LiteGraph.registered_node_types"
              "['PhysMotion_SpectralScore'])", 90)  # fmt: skip


def open_graph(page: Page, graph: Graph) -> dict[str, Any]:
    """Show a prompt, laid out; returns the workflow as the pages save it."""
    page.evaluate(f"window.app.loadApiJson({json.dumps(graph)}, 'example')")
    page.wait(f"window.app.graph._nodes.length === {len(graph)}")
    page.evaluate(
        "window.app.graph._nodes.forEach(node => (node.widgets || []).filter(w => w.name === 'control_after_generate')"
        ".forEach(w => { w.value = 'fixed'; }))"
    )
    page.evaluate(f"(room => window.app.graph._nodes.forEach(n => room[n.type] && n.setSize(room[n.type])))({json.dumps(_ROOM)})")
    page.evaluate("window.app.graph.arrange(60)")
    fit(page)
    return json.loads(page.evaluate("JSON.stringify(window.app.graph.serialize())"))


def wait_for_video(page: Page, kind: str, seconds: float) -> None:
    """Until a node of the class shows a video that could be played."""
    page.wait(f"{_VIDEOS}('{kind}') > 0", seconds)


def fit(page: Page) -> list[float]:
    """Move the whole graph into view; returns its left, top, right and bottom in the window."""
    return list(page.evaluate(_FIT))


def point_at(page: Page, kind: str, widget: str) -> None:
    """Move the mouse onto a widget of the first node of a class."""
    place = page.evaluate(
        f"(() => {{ const node = window.app.graph._nodes.find(n => n.type === '{kind}'), ds = window.app.canvas.ds;"
        f" const y = node.pos[1] + node.widgets.find(w => w.name === '{widget}').last_y + 10, x = node.pos[0] + node.size[0] / 2;"
        " const box = window.app.canvas.canvas.getBoundingClientRect();"
        " return [box.left + (x + ds.offset[0]) * ds.scale, box.top + (y + ds.offset[1]) * ds.scale]; })()"
    )
    page.move(place[0] - 3, place[1])
    page.move(*place)


def picture(page: Page, path: Path) -> Image.Image:
    """The whole graph, cut out of the page, which is kept at ``path``."""
    left, top, right, bottom = fit(page)
    page.evaluate("new Promise(done => setTimeout(done, 700))")
    page.screenshot(path)
    with Image.open(path) as whole:
        return whole.convert("RGB").crop((int(left) - 25, int(top) - 25, int(right) + 25, int(bottom) + 25))
