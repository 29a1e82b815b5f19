"""The app's graph and its API: names, shared limits, privacy, refusals without a stack, ten visitors at once."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.web

ROOT = Path(__file__).parents[2]
SMALL = {"count": 1, "frames": 8, "height": 64, "width": 64, "steps": 2, "guidance": 6.0, "true_guidance": 1.0}
PAIR = {
    "prompt": "a red square moves right",
    "model": "tiny",
    "adapter": "none",
    "adapter_file": None,
    "weight": 1.0,
    "seed": 0,
    "family": "recognised from the model",
    **SMALL,
}


@pytest.fixture(scope="module")
def client(app):
    from gradio_client import Client

    return Client(app.url, verbose=False)


def config(app):
    return app.demo.get_config_file()


def test_public_endpoints_have_names_and_all_else_is_private(app):
    public = {d["api_name"] for d in config(app)["dependencies"] if d["api_visibility"] == "public"}
    assert public == {"generate", "score", "compare_two"}


def test_events_that_generate_share_one_place_in_the_queue(app):
    functions = {f.api_name: f for f in app.demo.fns.values()}
    assert functions["generate"].concurrency_id == "gpu" and functions["generate"].concurrency_limit == 1
    assert functions["score"].concurrency_id == functions["compare_two"].concurrency_id == "cpu"


def test_nothing_of_a_study_is_in_the_page(app, study_folder):
    text = json.dumps(config(app), default=str)
    key = json.loads(study_folder.key.read_text())
    assert not any(name in text for name in key["files"]) and "swift" not in text


def test_launch_options(app):
    from phys_pipeline.web.app import launch_options, options_of, settings_of

    chosen = launch_options(app.context.settings)
    assert chosen["ssr_mode"] is chosen["run_history"] is False and chosen["max_file_size"] == "1mb"
    options = options_of([])
    assert (options.host, options.port, options.share, options.auth, options.mcp) == ("127.0.0.1", 7860, False, None, False)
    assert settings_of(options).local and not settings_of(options_of(["--host", "0.0.0.0"])).local
    assert settings_of(options_of(["--host", "0.0.0.0", "--local-files"])).local


def test_a_pair_through_the_api(client):
    status, player, grid, table, files, command, memory = client.predict(**PAIR, api_name="/generate")
    assert "Done." in status and grid == {"cards": []} and len(files) == 3 and memory["seed"] == 0
    assert player["frames"] == 8
    assert "Motion loss" in table and command.startswith("phys-pipeline generate")


BAD = [
    {"prompt": ""}, {"prompt": "x" * 5000}, {"frames": math.nan}, {"steps": math.nan}, {"weight": math.inf}, {"steps": 10**9},
    {"seed": -7}, {"count": 100}, {"height": 10**6}, {"width": -64}, {"model": "../../etc"}, {"model": "owner/name"},
    {"model": "/etc/passwd"}, {"adapter": "../../../etc/passwd"}, {"frames": "8; rm -rf /"}, {"prompt": None},
    {"family": "wan"}, {"family": "/etc/passwd"},
]  # fmt: skip


@pytest.mark.parametrize("change", BAD, ids=str)
def test_bad_input_is_refused_without_a_stack(client, change, caplog):
    with pytest.raises(Exception) as error:  # of several classes: our message, or Gradio's own check
        client.predict(**{**PAIR, **change}, api_name="/generate")
    said = str(error.value)
    assert "Traceback" not in said and str(ROOT) not in said and "site-packages" not in said


def test_refusals_are_logged(client, caplog):
    with caplog.at_level("WARNING"), pytest.raises(Exception, match="prompt is empty"):
        client.predict(**{**PAIR, "prompt": " "}, api_name="/generate")
    assert any("refused: the prompt is empty" in record.message for record in caplog.records)


def test_our_own_faults_are_a_number(client, app, monkeypatch, caplog):
    monkeypatch.setattr(app.context.models, "source", lambda chosen: 1 / 0)
    with pytest.raises(Exception, match=r"Something went wrong here .error [0-9a-f]{8}") as error:
        client.predict(**PAIR, api_name="/generate")
    assert "division" not in str(error.value) and any(record.exc_info for record in caplog.records)


def post(app, path, body, kind="application/json"):
    request = urllib.request.Request(f"{app.url}{path}", data=body, headers={"Content-Type": kind})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, reply.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")


def wait_until(true, seconds=120):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_one_address_can_not_fill_the_queue(app, monkeypatch):
    """A client that names a new session for each job: what it asks for beyond its places is refused, and then free again."""
    from gradio_client import Client

    from phys_pipeline.web import fairness
    from phys_pipeline.web.engine.jobs import Job

    monkeypatch.setattr(fairness, "MOST_PLACES", 2)
    clients = [Client(app.url, verbose=False) for _ in range(4)]
    with Job().device("a test"):
        held = [clients[0].submit(**PAIR, api_name="/generate")]
        wait_until(lambda: held[0].outputs())  # it runs, and waits for the device
        held.append(clients[1].submit(**PAIR, api_name="/generate"))
        wait_until(lambda: held[1].status().code.name == "IN_QUEUE")
        with pytest.raises(Exception, match="400 Bad Request"):
            clients[2].predict(**PAIR, api_name="/generate")
        number = next(index for index, function in app.demo.fns.items() if function.api_name == "score")
        asked = {"data": [None, "known motion: zoom in"], "fn_index": number, "session_hash": "another"}
        code, text = post(app, "/gradio_api/queue/join", json.dumps(asked).encode())
        assert code == 400 and "2 jobs from your address wait or run already" in text
    assert all("Done." in job.result(timeout=300)[0] for job in held)
    assert "Done." in clients[3].predict(**PAIR, api_name="/generate")[0]
    for each in clients:
        each.close()


def test_files_outside_are_neither_served_nor_read(app, client):
    for path in (ROOT / "app.py", Path("/etc/passwd"), app.root / "runs", f"{app.root}/gradio/../../../etc/passwd"):
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(f"{app.url}/gradio_api/file={path}")
        assert error.value.code in (403, 404)
    data = {"data": [{"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}, "none"], "session_hash": "x"}
    code, text = post(app, "/gradio_api/call/score", json.dumps(data).encode())
    if code == 200:
        event = json.loads(text)["event_id"]
        with urllib.request.urlopen(f"{app.url}/gradio_api/call/score/{event}", timeout=60) as reply:
            text = reply.read().decode()
        assert "event: error" in text
    assert "root:" not in text and "Traceback" not in text


def test_runs_are_not_served_even_to_who_knows_the_path(app, client):
    client.predict(**PAIR, api_name="/generate")
    video = next((app.root / "runs").glob("*/baseline-seed-0.mp4"))
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(f"{app.url}/gradio_api/file={video}")
    assert error.value.code == 403


def test_a_huge_upload_is_cut_off(app):
    """A gigabyte is announced and sent until the server refuses: it must not take it all."""
    import http.client

    boundary, host = "x" * 16, app.url.removeprefix("http://")
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="files"; filename="big.mp4"\r\n\r\n'.encode()
    size = 2**30
    connection = http.client.HTTPConnection(host, timeout=60)
    connection.putrequest("POST", "/gradio_api/upload")
    connection.putheader("Content-Type", f"multipart/form-data; boundary={boundary}")
    connection.putheader("Content-Length", str(len(head) + size))
    connection.endheaders()
    sent = 0
    try:
        connection.send(head)
        block = bytes(1 << 20)
        while sent < size:
            connection.send(block)
            sent += len(block)
            if sent > 200 << 20:
                break
    except (ConnectionError, OSError):
        pass
    try:
        status = connection.getresponse().status
    except (ConnectionError, OSError, http.client.HTTPException):
        status = 413  # the server hung up
    connection.close()
    assert status == 413 and sent < size
    assert sum(path.stat().st_size for path in (app.root / "gradio").rglob("*.mp4")) < 50 << 20


def test_auth(tmp_path, study_folder):
    from gradio_client import Client

    from phys_pipeline.web.app import build, launch_options
    from phys_pipeline.web.engine.settings import AppSettings

    settings = AppSettings(tmp_path, local=False)
    demo = build(settings)
    _, url, _ = demo.launch(
        server_name="127.0.0.1", prevent_thread_lock=True, quiet=True, auth=("user", "secret"), **launch_options(settings)
    )
    try:
        with pytest.raises(Exception, match=r"(?i)auth|login|401"):
            Client(url, verbose=False).predict(**PAIR, api_name="/generate")
        assert Client(url, verbose=False, auth=("user", "secret")).view_api(return_format="dict")["named_endpoints"]
    finally:
        demo.close(verbose=False)


def ten_visitors(url, prompts):
    """Each makes a pair; returns {prompt: result} and the order in which they ended."""
    from gradio_client import Client

    patient = {"timeout": 600}  # a server that loads its model answers late
    clients, jobs = [Client(url, verbose=False, httpx_kwargs=patient) for _ in prompts], []
    ended, order, lock = {}, [], threading.Lock()

    def note(prompt):
        with lock:
            order.append(prompt)

    for seed, (each, prompt) in enumerate(zip(clients, prompts, strict=True)):
        jobs.append(each.submit(**{**PAIR, "prompt": prompt, "seed": seed}, api_name="/generate"))
        jobs[-1].add_done_callback(lambda job, prompt=prompt: note(prompt))
        wait_until(lambda: jobs[-1].status().code.name not in ("STARTING", "JOINING_QUEUE"))  # the next one comes after this one
    for prompt, job in zip(prompts, jobs, strict=True):
        ended[prompt] = job.result(timeout=600)
    for each in clients:
        each.close()
    return ended, order


@pytest.fixture
def served_alone(tmp_path):
    """``python app.py`` in a process of its own, whose freed memory goes back to the system at once."""
    arenas = {"MALLOC_ARENA_MAX": "2", "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_MMAP_THRESHOLD_": "65536"}
    command = [sys.executable, "app.py", "--port", "0"]
    kept = {name: value for name, value in os.environ.items() if name != "GRADIO_TEMP_DIR"}
    process = subprocess.Popen(
        command, cwd=ROOT, env={**kept, **arenas, "TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE, text=True
    )
    line = next(line for line in process.stdout if "http://" in line)
    yield SimpleNamespace(url=line[line.index("http://") :].strip(), pid=process.pid)
    process.terminate()  # an interrupt would not reach it where the tests run in the background
    process.wait(timeout=60)


def resident(pid):
    """Bytes of memory that a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
def test_ten_visitors_at_once(served_alone):
    prompts = [f"visitor {chr(97 + index)} sees a red square" for index in range(10)]
    results, order = ten_visitors(served_alone.url, prompts)  # loads the model, fills caches
    for prompt, result in results.items():
        text = json.dumps(result)
        assert prompt in text and not any(other in text for other in prompts if other != prompt)
    assert all(abs(order.index(prompt) - index) <= 1 for index, prompt in enumerate(prompts))  # first come, first served
    before = resident(served_alone.pid)
    for _ in range(2):  # what is not freed grows in each round
        ten_visitors(served_alone.url, prompts)
    after = resident(served_alone.pid)
    assert after < 1.1 * before, f"{before / 2**20:.0f} MiB before, {after / 2**20:.0f} MiB after two more rounds"


def test_a_space_finds_its_page_in_app_py(monkeypatch):
    monkeypatch.setenv("GRADIO_SERVER_NAME", "0.0.0.0")
    monkeypatch.setenv("GRADIO_TEMP_DIR", "unused")
    spec = importlib.util.spec_from_file_location("app_of_a_space", ROOT / "app.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert not module.demo.context.settings.local and module.options.share is False
    shutil.rmtree(module.demo.context.settings.root)


def test_the_engine_needs_no_gradio():
    code = (
        "import sys, pkgutil, importlib, phys_pipeline.web.engine as e\n"
        "[importlib.import_module(f'{e.__name__}.{m.name}') for m in pkgutil.iter_modules(e.__path__)]\n"
        "sys.exit('gradio' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
