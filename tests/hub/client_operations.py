"""Every operation of huggingface_hub's client that publishing could use, against the Hub of HF_ENDPOINT; prints their names."""

import hashlib
import sys
import tempfile
from pathlib import Path

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, hf_hub_download, snapshot_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

NAME = "owner/operations"
api = HfApi()
done = []


def step(function):
    function()
    done.append(function.__name__)


def raises(error, function, *arguments, status=None, **options):
    try:
        function(*arguments, **options)
    except error as caught:
        assert status is None or caught.response.status_code == status, caught
        return caught
    raise AssertionError(f"{function} raised no {error}")


work = Path(tempfile.mkdtemp())
large = hashlib.sha256(b"seed").digest() * 100_000  # 3.2 MB
(work / "folder" / "inner").mkdir(parents=True)
(work / "folder" / "weights.safetensors").write_bytes(large)
(work / "folder" / "inner" / "notes.txt").write_text("notes")
(work / "folder" / "README.md").write_text("---\ntags: [lora]\nbase_model: a/b\nbase_model_relation: adapter\n---\ntext\n")


@step
def who_and_create():
    assert api.whoami()["name"] == "owner"
    assert NAME in str(api.create_repo(NAME, private=True))
    assert NAME in str(api.create_repo(NAME, exist_ok=True))
    raises(HfHubHTTPError, api.create_repo, NAME, status=409)
    raises(HfHubHTTPError, api.create_repo, "stranger/x", status=403)
    assert api.repo_info(NAME).private and api.repo_exists(NAME) and not api.repo_exists("owner/none")
    raises(RepositoryNotFoundError, api.model_info, NAME, token=False)
    api.auth_check(NAME, write=True)


@step
def upload_folder():
    api.upload_folder(repo_id=NAME, folder_path=work / "folder")
    assert sorted(api.list_repo_files(NAME)) == [".gitattributes", "README.md", "inner/notes.txt", "weights.safetensors"]
    info = api.model_info(NAME, files_metadata=True)
    files = {item.rfilename: item for item in info.siblings}
    assert files["weights.safetensors"].lfs.sha256 == hashlib.sha256(large).hexdigest()
    assert files["inner/notes.txt"].size == 5 and "base_model:adapter:a/b" in info.tags


@step
def commits():
    head = api.model_info(NAME).sha
    operations = [CommitOperationAdd("more.bin", b"x" * 70_000), CommitOperationAdd("small.txt", b"small")]
    made = api.create_commit(NAME, operations, commit_message="two", parent_commit=head)
    again = [CommitOperationAdd("more.bin", b"x" * 70_000), CommitOperationAdd("small.txt", b"small")]
    assert api.create_commit(NAME, again, commit_message="nothing new").oid == made.oid
    stale = [CommitOperationAdd("other.txt", b"other")]
    raises(HfHubHTTPError, api.create_commit, NAME, stale, commit_message="stale", parent_commit=head, status=412)
    api.create_commit(NAME, [CommitOperationDelete("small.txt")], commit_message="less")
    api.delete_file("more.bin", NAME)
    api.delete_folder("inner", NAME)
    assert sorted(api.list_repo_files(NAME)) == [".gitattributes", "README.md", "weights.safetensors"]
    assert [c.title for c in api.list_repo_commits(NAME)][3:5] == ["two", "Upload folder using huggingface_hub"]
    bad = [CommitOperationAdd("README.md", b"---\nbase_model: /home/me/model\n---\n")]
    raises(ValueError, api.create_commit, NAME, bad, commit_message="bad card")


@step
def listings():
    items = {item.path: item for item in api.list_repo_tree(NAME, recursive=True, expand=True)}
    assert items["weights.safetensors"].lfs.size == len(large)
    paths = api.get_paths_info(NAME, ["weights.safetensors", "README.md", "none"])
    assert [item.path for item in paths] == ["weights.safetensors", "README.md"]
    assert paths[0].lfs.sha256 == hashlib.sha256(large).hexdigest()
    assert NAME in [found.id for found in api.list_models(author="owner")]
    raises(EntryNotFoundError, lambda: list(api.list_repo_tree(NAME, "none")))


@step
def references():
    first = api.list_repo_commits(NAME)[-2].commit_id
    api.create_tag(NAME, tag="v1", revision=first)
    raises(HfHubHTTPError, api.create_tag, NAME, tag="v1", status=409)
    api.create_branch(NAME, branch="exp/a")
    refs = api.list_repo_refs(NAME)
    assert {tag.name: tag.target_commit for tag in refs.tags} == {"v1": first}
    assert {branch.name for branch in refs.branches} == {"main", "exp/a"}
    assert "inner/notes.txt" in api.list_repo_files(NAME, revision="v1") and api.model_info(NAME, revision="exp/a")
    api.delete_branch(NAME, branch="exp/a")
    api.delete_tag(NAME, tag="v1")
    raises(RevisionNotFoundError, api.model_info, NAME, revision="v1")


@step
def downloads():
    file = Path(hf_hub_download(NAME, "weights.safetensors"))
    assert file.read_bytes() == large
    folder = Path(snapshot_download(NAME, local_dir=work / "copy"))
    assert (folder / "README.md").is_file() and (folder / "weights.safetensors").read_bytes() == large
    raises(EntryNotFoundError, hf_hub_download, NAME, "none.txt")
    raises(RevisionNotFoundError, hf_hub_download, NAME, "README.md", revision="none")
    api.verify_repo_checksums(NAME)


@step
def ranges():
    from huggingface_hub.utils import build_hf_headers, get_session

    headers = {**build_hf_headers(), "Range": "bytes=10-19"}
    answer = get_session().get(f"{api.endpoint}/{NAME}/resolve/main/weights.safetensors", headers=headers, follow_redirects=True)
    assert answer.status_code == 206 and answer.content == large[10:20]
    headers["Range"] = f"bytes={len(large)}-"
    answer = get_session().get(f"{api.endpoint}/{NAME}/resolve/main/weights.safetensors", headers=headers, follow_redirects=True)
    assert answer.status_code == 416


@step
def pull_requests():
    made = api.create_commit(NAME, [CommitOperationAdd("pr.txt", b"pr")], commit_message="propose", create_pr=True)
    assert made.pr_num == 1 and "pr.txt" in api.list_repo_files(NAME, revision="refs/pr/1")
    assert "pr.txt" not in api.list_repo_files(NAME)


@step
def settings_and_names():
    api.update_repo_settings(NAME, private=False, gated="auto")
    assert not api.model_info(NAME, token=False).private
    raises(HfHubHTTPError, hf_hub_download, NAME, "weights.safetensors", token=False, cache_dir=work / "empty")
    api.update_repo_settings(NAME, gated=False)
    api.move_repo(NAME, "lab/moved")
    assert api.model_info(NAME).id == "lab/moved"
    assert Path(hf_hub_download(NAME, "README.md", token=False, cache_dir=work / "empty")).is_file()


@step
def delete():
    api.delete_repo("lab/moved")
    assert not api.repo_exists("lab/moved")
    api.delete_repo("lab/moved", missing_ok=True)


print(" ".join(done))
sys.exit(0)
