"""Publishing: one commit, proven, tagged, then shown; a rerun goes on where it stopped, and the run's folder stays as it is."""

import json

import pytest
from hub_adapter import make_run, snapshot
from hub_server import Fault, HubServer
from hub_server.server import READER, STRANGER, TOKEN
from huggingface_hub import constants

from phys_pipeline.adapters.hub import fetch_adapter
from phys_pipeline.adapters.publishing import plan, publish, read_receipt
from phys_pipeline.cli import main
from phys_pipeline.errors import AdapterError, HubError
from phys_pipeline.families import get_family

WEIGHTS = "pytorch_lora_weights.safetensors"
NAME = "owner/physics"
MODULES = {"mochi": "diffusers", "open_sora_1_2": "phys_pipeline.pipelines.open_sora"}


@pytest.fixture
def run_folder(tmp_path):
    folder = make_run(tmp_path / "run")
    before = snapshot(folder)
    yield folder
    assert snapshot(folder) == before


def writes(hub):
    return [request for request in hub.log if request.method in ("POST", "PUT", "DELETE")]


def test_a_new_repository_is_private_complete_and_proven(here, client, run_folder):
    done = publish(run_folder, NAME, tag="v1.0", hub=client)
    repo = here.repo(NAME)
    assert repo.private and done.private and done.new and repo.refs["refs/tags/v1.0"] == done.commit == repo.sha("main")
    assert len(repo.history("main")) == 2  # the server's own first commit, and one
    assert here.read(NAME, WEIGHTS) == (run_folder / WEIGHTS).read_bytes()
    assert set(repo.head.tree) == {
        ".gitattributes", "README.md", WEIGHTS, "comfyui/run.safetensors", "provenance.json", "report.md",
        "validation/base/results.json", "validation/base/prompt-0-seed-0.mp4", "validation/step-10/results.json",
        "validation/step-10/prompt-0-seed-0.mp4", "validation/step-10/prompt-0-seed-0-pair.mp4",
    }  # fmt: skip
    assert any(request.method == "GET" and request.path.startswith("/download") for request in here.log)  # proven
    assert fetch_adapter(f"{NAME}@v1.0", hub=client).sha256 == read_receipt(run_folder)[NAME]["files"][WEIGHTS]
    assert b"hf_" not in (run_folder / "published.json").read_bytes()

    before = len(here.log)
    again = publish(run_folder, NAME, tag="v1.0", hub=client)
    assert (again.commit, again.new) == (done.commit, False)
    assert [request.method for request in here.log[before:]] == ["GET"] * (len(here.log) - before)  # a rerun changes nothing
    assert not [request for request in here.log[before:] if request.path.startswith("/download")]


def test_public_only_when_asked_and_after_the_proof(here, client, run_folder):
    here.inject(Fault("GET /download", flip=900, times=2))
    with pytest.raises(HubError, match="comes back from owner/physics damaged"):
        publish(run_folder, NAME, public=True, tag="v1", hub=client)
    repo = here.repo(NAME)
    assert repo.private and "refs/tags/v1" not in repo.refs and read_receipt(run_folder) == {}
    assert not publish(run_folder, NAME, public=True, tag="v1", hub=client).private and not repo.private
    assert len(repo.history("main")) == 2
    lines = [request.method + request.path for request in here.log]
    assert lines.index(f"PUT/api/models/{NAME}/settings") > lines.index(f"POST/api/models/{NAME}/commit/main")
    with pytest.raises(HubError, match="is public and --private was asked"):
        publish(run_folder, NAME, public=False, hub=client)
    assert not publish(run_folder, NAME, hub=client).private  # as it is


def test_what_others_put_there_stays(here, client, run_folder):
    here.store.create("model", NAME, here.store.accounts[TOKEN], private=True)
    repo = here.repo(NAME)
    here.store.commit(repo, "refs/heads/main", {**repo.head.tree, "notes.txt": here.store.small(b"mine")}, "notes", "", "owner")
    publish(run_folder, NAME, hub=client)
    assert here.read(NAME, "notes.txt") == b"mine" and len(repo.history("main")) == 3


def test_a_tag_is_never_moved(here, client, run_folder, tmp_path):
    first = publish(run_folder, NAME, tag="v1", hub=client)
    other = make_run(tmp_path / "other" / "run", seed=1)
    before = len(writes(here))
    with pytest.raises(HubError, match="the tag v1 of owner/physics names another version"):
        publish(other, NAME, tag="v1", hub=client)
    assert len(writes(here)) == before
    second = publish(other, NAME, tag="v2", hub=client)
    assert here.repo(NAME).refs["refs/tags/v1"] == first.commit != second.commit
    assert publish(run_folder, NAME, tag="v1", hub=client).commit == first.commit  # still there: nothing to do


def test_the_receipts_tag_stays_with_its_version(here, client, run_folder, tmp_path):
    first = publish(run_folder, NAME, tag="v1", hub=client)
    same = publish(run_folder, NAME, hub=client)
    assert (same.commit, same.tag, same.new) == (first.commit, "v1", False)
    other = make_run(tmp_path / "other" / "run", seed=1)
    (other / "published.json").write_bytes((run_folder / "published.json").read_bytes())  # trained again in the same folder
    second = publish(other, NAME, hub=client)
    assert second.new and second.tag is None and b"v1" not in here.read(NAME, "README.md")


def test_a_lost_answer_is_found_out_and_not_committed_again(here, client, run_folder):
    said = []
    here.inject(Fault("POST .*/commit/", after=True, drop=True))
    done = publish(run_folder, NAME, hub=client, say=said.append)
    assert done.commit == here.repo(NAME).sha("main") and len(here.repo(NAME).history("main")) == 2
    assert "the Hub's answer was lost, but the commit is there" in said


@pytest.mark.parametrize("after", [False, True])
def test_a_killed_publication_is_finished_by_the_next(after, here, client, run_folder, monkeypatch):
    perform, operations = client._perform, []

    def die(operation, arguments, seconds):
        if operation == operations[-1] and after:
            perform(operation, arguments, seconds)
        if operation == operations[-1]:
            raise SystemExit
        return perform(operation, arguments, seconds)

    monkeypatch.setattr(client, "_perform", die)
    for operation in ("create", "commit", "download", "tag", "show"):
        operations.append(operation)
        with pytest.raises(SystemExit):
            publish(run_folder, NAME, public=True, tag="v1", hub=client)
        assert not (run_folder / "published.json").exists()
    operations.append("none")
    done = publish(run_folder, NAME, public=True, tag="v1", hub=client)
    repo = here.repo(NAME)
    assert len(repo.history("main")) == 2 and repo.refs["refs/tags/v1"] == done.commit and not repo.private


def test_a_change_by_someone_else_is_kept_and_told(here, client, run_folder, monkeypatch):
    said = []
    perform = client._perform

    def meddle(operation, arguments, seconds):
        repo = here.store.repos.get(("model", NAME))
        if operation == "commit" and len(repo.commits) == 1:
            here.store.commit(repo, "refs/heads/main", {**repo.head.tree, "x": here.store.small(b"x")}, "x", "", "lab")
        return perform(operation, arguments, seconds)

    monkeypatch.setattr(client, "_perform", meddle)
    publish(run_folder, NAME, hub=client, say=said.append)
    assert here.read(NAME, "x") == b"x" and len(here.repo(NAME).history("main")) == 3
    assert any("changed by someone else" in line for line in said)


@pytest.mark.parametrize(
    ("token", "name", "message"),
    [
        ("", NAME, "hf auth login"),
        ("hf_revoked0000000000000000", NAME, "hf auth login"),
        (READER, NAME, "may not make owner/physics with this token"),
        (STRANGER, NAME, "may not make owner/physics"),
        (TOKEN, "elsewhere/physics", "may not make elsewhere/physics"),
    ],
)
def test_tokens_that_may_not_are_one_line(token, name, message, here, client, run_folder, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(HubError, match=message) as caught:
        publish(run_folder, name, hub=client)
    text = str(caught.value)
    assert "\n" not in text and "is untouched" in text and (not token or token not in text) and not here.store.repos


def test_a_bad_card_or_a_path_stops_before_anything_is_sent(here, client, run_folder, tmp_path):
    bad = make_run(tmp_path / "bad" / "run", note="/home/me/clips")
    with pytest.raises(AdapterError, match="path of this machine"):
        publish(bad, NAME, hub=client)
    assert here.log == []


def test_offline_is_said_at_once(here, client, run_folder, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(HubError, match="unset it"):
        publish(run_folder, NAME, hub=client)
    assert here.log == []


def test_the_dry_run_lists_everything_and_sends_nothing(here, run_folder, capsys):
    assert main(["publish", str(run_folder), "--repo-id", NAME, "--dry-run", "--revision", "v1"]) == 0
    printed = capsys.readouterr().out
    for line in snapshot(run_folder):
        assert (line in printed) == (line not in ("config.yaml", "checkpoint-5/optimizer.pt") and "step-5" not in line)
    assert "nothing was sent" in printed and "private if it is new" in printed
    assert here.log == [] and not (run_folder / "published.json").exists()


def test_the_command_publishes_by_xet(tmp_path, run_folder, run):
    """The other tests here do so by Git LFS."""
    with HubServer(tmp_path / "server") as server:
        arguments = ("-m", "phys_pipeline", "publish", str(run_folder), "--repo-id", NAME, "--public", "--revision", "v1")
        done = run(server, *arguments)
        assert "published" in done.stdout and "public" in done.stdout and TOKEN not in done.stdout + done.stderr
        assert server.read(NAME, WEIGHTS) == (run_folder / WEIGHTS).read_bytes()
        assert not any(request.path.startswith("/upload") for request in server.log)
        assert json.loads((run_folder / "published.json").read_text())["repositories"][NAME]["tag"] == "v1"


def test_a_stall_is_ended_and_tried_once_more_without_xet(tmp_path, here, run_folder):
    said = []
    here.inject(Fault("POST .*/commit/", delay=300))
    done = publish(run_folder, NAME, seconds=4, say=said.append)
    assert done.new and any("without Xet" in line for line in said) and len(here.repo(NAME).history("main")) == 2
    here.calm()
    here.inject(Fault("POST .*/commit/", delay=300, times=9))
    other = make_run(tmp_path / "other" / "run", seed=1)
    with pytest.raises(HubError, match=r"did not finish `commit`.*untouched"):
        publish(other, NAME, seconds=2)


def test_a_file_that_changes_after_its_check_is_not_sent(here, client, run_folder, monkeypatch):
    """As when a trainer still writes into the folder: what is sent is what was looked at for secrets and paths."""
    perform, report = client._perform, (run_folder / "report.md").read_bytes()

    def changing(operation, arguments, seconds):
        if operation == "whoami":
            (run_folder / "report.md").write_text("see /home/someone/secret\n")
        return perform(operation, arguments, seconds)

    monkeypatch.setattr(client, "_perform", changing)
    with pytest.raises(AdapterError, match=r"report\.md changed while it was being published"):
        publish(run_folder, NAME, hub=client)
    assert len(here.repo(NAME).history("main")) == 1 and read_receipt(run_folder) == {}
    (run_folder / "report.md").write_bytes(report)


@pytest.mark.parametrize("text", ["", "[]", '{"repositories": []}', '{"repositories": {"owner/physics": "x"}}'])
def test_a_damaged_receipt_is_no_receipt(here, client, run_folder, text):
    (run_folder / "published.json").write_text(text)
    assert publish(run_folder, NAME, hub=client).new and read_receipt(run_folder)[NAME]["commit"]


@pytest.mark.parametrize("family", ["mochi", "open_sora_1_2"])
def test_a_dry_run_for_another_family_needs_no_network(tmp_path, capsys, monkeypatch, family):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    folder = make_run(tmp_path / "run", family=family)
    (folder / "comfyui" / "run.safetensors").unlink()
    assert main(["publish", str(folder), "--repo-id", NAME, "--dry-run"]) == 0
    said = capsys.readouterr()
    assert "README.md" in said.out and "comfyui" not in said.out and "nothing was sent" in said.out
    card = plan(folder, NAME).files["README.md"].text
    assert f"from {MODULES[family]} import {get_family(family).spec.pipeline_class}\n" in card and "ComfyUI" not in card
