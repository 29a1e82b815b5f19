"""The Hub's routes for accounts, repositories, commits, references and listings."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode

import yaml
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hub_server.store import Entry, Refused, Repo, Store, is_large, pointer

KINDS = {"models": "model", "datasets": "dataset", "spaces": "space"}
PAGE = 1000
RELATIONS = ("adapter", "finetune", "merge", "quantized")
FRONT_MATTER = re.compile(r"^---\s*\n(.*?)\n---\s*(\n|$)", re.S)


class Api:
    """Handlers of the routes under /api; ``base`` is the server's own address."""

    def __init__(self, store: Store) -> None:
        self.store, self.base = store, ""

    def routes(self) -> list[Route]:
        repo = "/api/{kind}/{owner}/{name}"

        def route(path: str, handler: Any, *methods: str) -> Route:
            return Route(path, handler, methods=list(methods or ("GET",)))

        return [
            route("/api/whoami-v2", self.whoami),
            route("/api/validate-yaml", self.validate, "POST"),
            route("/api/repos/create", self.create, "POST"),
            route("/api/repos/delete", self.delete, "DELETE"),
            route("/api/repos/move", self.move, "POST"),
            route(f"{repo}/settings", self.settings, "PUT"),
            route(f"{repo}/auth-check", self.check_access),
            route(f"{repo}/auth-check/write", self.check_access),
            route(f"{repo}/preupload/{{revision:path}}", self.preupload, "POST"),
            route(f"{repo}/commit/{{revision:path}}", self.commit, "POST"),
            route(f"{repo}/xet-{{use}}-token/{{revision:path}}", self.xet_token),
            route(f"{repo}/revision/{{revision:path}}", self.info),
            route(f"{repo}/tree/{{revision}}", self.tree),
            route(f"{repo}/tree/{{revision}}/{{path:path}}", self.tree),
            route(f"{repo}/paths-info/{{revision:path}}", self.paths_info, "POST"),
            route(f"{repo}/refs", self.refs),
            route(f"{repo}/commits/{{revision:path}}", self.commits),
            route(f"{repo}/tag/{{revision:path}}", self.tag, "POST", "DELETE"),
            route(f"{repo}/branch/{{revision:path}}", self.branch, "POST", "DELETE"),
            route(f"{repo}/discussions", self.discuss, "POST"),
            route(f"{repo}/discussions/{{number:int}}", self.discussion),
            route(repo, self.info),
            *(route(f"/api/{kind}", self.search) for kind in KINDS),
        ]

    def who(self, request: Request) -> Any:
        return self.store.account(request.headers.get("authorization"))

    def repo(self, request: Request, **needs: bool) -> Repo:
        kind, owner, name = (request.path_params[key] for key in ("kind", "owner", "name"))
        if kind not in KINDS:
            raise Refused(404, "no such route")
        if moved := self.store.moved.get((KINDS[kind], f"{owner}/{name}")):
            target = request.scope["raw_path"].decode().replace(f"/{owner}/{name}", f"/{moved}", 1)
            raise Refused(307, "moved", Location=f"{target}?{request.url.query}")
        return self.store.repo(KINDS[kind], f"{owner}/{name}", self.who(request), **needs)

    def url(self, repo: Repo) -> str:
        return f"{self.base}/{'' if repo.type == 'model' else repo.type + 's/'}{repo.id}"

    # accounts and repositories
    async def whoami(self, request: Request) -> Response:
        who = self.who(request)
        if who is None:
            raise Refused(401, "Invalid username or password.")
        organisations = [{"type": "org", "name": name, "roleInOrg": "admin"} for name in who.organisations]
        token = {"type": "access_token", "accessToken": {"displayName": "test", "role": who.role}}
        return JSONResponse({"type": "user", "name": who.name, "fullname": who.name, "orgs": organisations, "auth": token})

    async def validate(self, request: Request) -> Response:
        errors = card_errors((await request.json())["content"])
        return JSONResponse({"errors": [{"message": text} for text in errors], "warnings": []}, 400 if errors else 200)

    async def create(self, request: Request) -> Response:
        body, who = await request.json(), self.who(request)
        kind, owner = body.get("type") or "model", body.get("organization") or (who.name if who else "")
        repo, new = self.store.create(kind, f"{owner}/{body['name']}", who, body.get("visibility") == "private")
        if not new:
            return JSONResponse({"error": f"You already created this {kind} repo", "url": self.url(repo)}, 409)
        return JSONResponse({"url": self.url(repo), "name": repo.id, "id": repo.id})

    async def delete(self, request: Request) -> Response:
        body, who = await request.json(), self.who(request)
        kind, owner = body.get("type") or "model", body.get("organization") or (who.name if who else "")
        repo = self.store.repo(kind, f"{owner}/{body['name']}", who, write=True)
        del self.store.repos[kind, repo.id]
        return Response("OK")

    async def move(self, request: Request) -> Response:
        body = await request.json()
        self.store.move(body.get("type") or "model", body["fromRepo"], body["toRepo"], self.who(request))
        return JSONResponse({})

    async def settings(self, request: Request) -> Response:
        repo, body = self.repo(request, write=True), await request.json()
        repo.gated = body.get("gated", repo.gated)
        if "visibility" in body:
            repo.private = body["visibility"] == "private"
        return JSONResponse({"private": repo.private, "gated": repo.gated})

    async def check_access(self, request: Request) -> Response:
        self.repo(request, content=True, write=request.url.path.endswith("/write"))
        return JSONResponse({})

    async def search(self, request: Request) -> Response:
        kind, who, author = KINDS[request.url.path.split("/")[2]], self.who(request), request.query_params.get("author")
        found = [
            {"_id": "0" * 24, "id": repo.id, "modelId": repo.id, "private": repo.private, "createdAt": repo.created, "tags": []}
            for (of, _), repo in self.store.repos.items()
            if of == kind and author in (None, repo.owner) and (not repo.private or (who and who.owns(repo.owner)))
        ]
        return JSONResponse(found)

    # commits
    async def preupload(self, request: Request) -> Response:
        repo = self.repo(request, write="create_pr" not in request.query_params)
        sha = repo.sha(unquote(request.path_params["revision"]))
        answers = []
        for file in (await request.json())["files"]:
            mode = "lfs" if is_large(file["path"], file["size"]) else "regular"
            answer = {"path": file["path"], "uploadMode": mode, "shouldIgnore": False}
            if present := repo.commits[sha].tree.get(file["path"]):
                answer["oid"] = present.etag
            answers.append(answer)
        return JSONResponse({"files": answers, "commitOid": sha})

    async def commit(self, request: Request) -> Response:
        if request.headers.get("content-type") != "application/x-ndjson":
            raise Refused(400, "a commit is application/x-ndjson")
        as_pull_request = "create_pr" in request.query_params
        repo, who = self.repo(request, write=not as_pull_request), self.who(request)
        first, *operations = [json.loads(line) for line in (await request.body()).splitlines() if line.strip()]
        about = first["value"]
        with self.store.lock:
            ref = repo.ref(unquote(request.path_params["revision"])) or ""
            head = repo.sha(ref)
            if not ref.startswith(("refs/heads/", "refs/pr/")):
                raise Refused(400, "commits go to branches")
            if about.get("parentCommit") not in (None, head):
                raise Refused(412, "A commit has happened since. Please refresh and try again.")
            tree = self._changed(repo.commits[head].tree, operations)
            answer = {"success": True, "hookOutput": ""}
            if as_pull_request:
                number = self._open(repo, about["summary"], head)
                ref, answer["pullRequestUrl"] = f"refs/pr/{number}", f"{self.url(repo)}/discussions/{number}"
            sha = self.store.commit(repo, ref, tree, about["summary"], about.get("description", ""), who.name)
        return JSONResponse({**answer, "commitOid": sha, "commitUrl": f"{self.url(repo)}/commit/{sha}"})

    def _changed(self, tree: dict[str, Entry], operations: list[dict[str, Any]]) -> dict[str, Entry]:
        tree = dict(tree)
        for operation in operations:
            value = operation["value"]
            path = value["path"]
            match operation["key"]:
                case "file":
                    tree[path] = self.store.small(base64.b64decode(value["content"]))
                case "lfsFile":
                    tree[path] = self.store.large_entry(value["oid"], value["size"])
                case "deletedFile":
                    if tree.pop(path, None) is None:
                        raise Refused(404, f"A file with this name doesn't exist: {path}", "EntryNotFound")
                case "deletedFolder":
                    tree = {name: entry for name, entry in tree.items() if not name.startswith(path.rstrip("/") + "/")}
                case other:
                    raise Refused(400, f"unknown operation {other}")
        return tree

    async def xet_token(self, request: Request) -> Response:
        write = request.path_params["use"] == "write"
        self.repo(request, write=write and "create_pr" not in request.query_params, content=not write)
        if self.store.xet is None:
            raise Refused(404, "this server has no Xet storage")
        url, token, until = self.store.xet.url, "xet-token", int(time.time()) + 3600
        headers = {"X-Xet-Cas-Url": url, "X-Xet-Access-Token": token, "X-Xet-Token-Expiration": str(until)}
        return JSONResponse({"casUrl": url, "accessToken": token, "exp": until}, headers=headers)

    # references
    async def refs(self, request: Request) -> Response:
        repo = self.repo(request)
        found: dict[str, list[dict[str, str]]] = {"branches": [], "tags": [], "converts": []}
        if request.query_params.get("include_prs"):
            found["pullRequests"] = []
        for ref, sha in repo.refs.items():
            group = {"heads": "branches", "tags": "tags", "pr": "pullRequests"}[ref.split("/")[1]]
            if group in found:
                found[group].append({"name": ref.split("/", 2)[2], "ref": ref, "targetCommit": sha})
        return JSONResponse(found)

    async def commits(self, request: Request) -> Response:
        history = self.repo(request).history(unquote(request.path_params["revision"]))
        return JSONResponse(
            [
                {"id": sha, "title": c.title, "message": c.message, "date": c.date, "authors": [{"user": c.author}]}
                for sha, c in history
            ]
        )

    async def tag(self, request: Request) -> Response:
        repo, revision = self.repo(request, write=True), unquote(request.path_params["revision"])
        if request.method == "DELETE":
            return self._forget(repo, f"refs/tags/{revision}")
        return self._point(repo, f"refs/tags/{(await request.json())['tag']}", revision, "Tag reference exists already")

    async def branch(self, request: Request) -> Response:
        repo, name = self.repo(request, write=True), f"refs/heads/{unquote(request.path_params['revision'])}"
        if request.method == "DELETE":
            return self._forget(repo, name)
        text = await request.body()
        start = json.loads(text).get("startingPoint") if text else None
        return self._point(repo, name, start or "main", "Reference already exists")

    def _point(self, repo: Repo, ref: str, revision: str, exists: str) -> Response:
        with self.store.lock:
            if ref in repo.refs:
                raise Refused(409, exists)
            repo.refs[ref] = repo.sha(revision)
        return JSONResponse({})

    def _forget(self, repo: Repo, ref: str) -> Response:
        if repo.refs.pop(ref, None) is None:
            raise Refused(404, f"{ref} does not exist", "RevisionNotFound")
        return JSONResponse({})

    def _open(self, repo: Repo, title: str, head: str) -> int:
        number = len(repo.discussions) + 1
        repo.discussions[number] = {"title": title}
        repo.refs[f"refs/pr/{number}"] = head
        return number

    async def discuss(self, request: Request) -> Response:
        repo, body = self.repo(request), await request.json()
        number = self._open(repo, body["title"], repo.sha("main"))
        return JSONResponse({"num": number, "url": f"{self.url(repo)}/discussions/{number}", "pullRequest": True})

    async def discussion(self, request: Request) -> Response:
        repo, number = self.repo(request), request.path_params["number"]
        if number not in repo.discussions:
            raise Refused(404, "no such discussion")
        about = {"num": number, "title": repo.discussions[number]["title"], "status": "draft", "isPullRequest": True}
        about |= {"author": {"name": repo.owner}, "createdAt": repo.created, "repo": {"name": repo.id, "type": repo.type}}
        return JSONResponse(about | {"changes": {"base": "refs/heads/main"}, "filesWithConflicts": [], "events": [], "diff": ""})

    # listings
    async def info(self, request: Request) -> Response:
        repo = self.repo(request)
        sha = repo.sha(unquote(request.path_params.get("revision", "main")))
        commit = repo.commits[sha]
        card = self._card(commit.tree)
        sizes = request.query_params.get("blobs", "").lower() == "true"
        siblings = [{"rfilename": path, **(blob_info(entry) if sizes else {})} for path, entry in sorted(commit.tree.items())]
        return JSONResponse({
            "_id": hashlib.md5(repo.id.encode()).hexdigest()[:24], "id": repo.id, "modelId": repo.id, "author": repo.owner,
            "sha": sha, "lastModified": commit.date, "createdAt": repo.created, "private": repo.private, "gated": repo.gated,
            "disabled": repo.disabled, "downloads": 0, "likes": 0, "tags": tags_of(card), "siblings": siblings, "spaces": [],
            "pipeline_tag": card.get("pipeline_tag"), "library_name": card.get("library_name"), "cardData": card,
        })  # fmt: skip

    def _card(self, tree: dict[str, Entry]) -> dict[str, Any]:
        readme = tree.get("README.md")
        found = FRONT_MATTER.match(self.store.read(readme).decode()) if readme else None
        return (yaml.safe_load(found[1]) or {}) if found else {}

    async def tree(self, request: Request) -> Response:
        repo = self.repo(request)
        sha = repo.sha(unquote(request.path_params["revision"]))
        below = unquote(request.path_params.get("path", "")).strip("/")
        recursive = request.query_params.get("recursive", "").lower() == "true"
        prefix, commit = below + "/" if below else "", repo.commits[sha]
        items: dict[str, dict[str, Any]] = {}
        for path, entry in sorted(commit.tree.items()):
            if path.startswith(prefix):
                names = path[len(prefix) :].split("/")
                for depth in range(1, len(names) if recursive else min(2, len(names))):
                    folder = prefix + "/".join(names[:depth])
                    items.setdefault(folder, {"type": "directory", "oid": "0" * 40, "size": 0, "path": folder})
                if recursive or len(names) == 1:
                    items[path] = self._item(path, entry)
        if prefix and not items:
            raise Refused(404, f'{below} does not exist on "{sha}"', "EntryNotFound", X_Repo_Commit=sha)
        if request.query_params.get("expand", "").lower() == "true":
            for item in items.values():
                item["lastCommit"] = {"id": sha, "title": commit.title, "date": commit.date}
        start, headers = int(request.query_params.get("cursor", 0)), {}
        if start + PAGE < len(items):
            query = urlencode({**request.query_params, "cursor": start + PAGE})
            headers["Link"] = f'<{self.base}{request.url.path}?{query}>; rel="next"'
        return JSONResponse(list(items.values())[start : start + PAGE], headers=headers)

    async def paths_info(self, request: Request) -> Response:
        repo = self.repo(request)
        tree = repo.commits[repo.sha(unquote(request.path_params["revision"]))].tree
        paths = parse_qs((await request.body()).decode()).get("paths", [])
        found = []
        for path in paths:
            if path in tree:
                found.append(self._item(path, tree[path]))
            elif any(name.startswith(path.rstrip("/") + "/") for name in tree):
                found.append({"type": "directory", "oid": "0" * 40, "size": 0, "path": path})
        return JSONResponse(found)

    def _item(self, path: str, entry: Entry) -> dict[str, Any]:
        item: dict[str, Any] = {"type": "file", "path": path, "size": entry.size, "oid": entry.oid}
        if entry.sha256:
            size = len(pointer(entry.sha256, entry.size))
            item["lfs"] = {"oid": entry.sha256, "size": entry.size, "pointerSize": size}
            if self.store.xet and (stored := self.store.xet.find(entry.sha256)):
                item["xetHash"] = stored[0]
        return item


def blob_info(entry: Entry) -> dict[str, Any]:
    found: dict[str, Any] = {"size": entry.size, "blobId": entry.oid}
    if entry.sha256:
        size = len(pointer(entry.sha256, entry.size))
        found["lfs"] = {"sha256": entry.sha256, "size": entry.size, "pointerSize": size}
    return found


def tags_of(card: dict[str, Any]) -> list[str]:
    """Tags as the Hub derives them from a card."""
    base = card.get("base_model") or []
    bases = [base] if isinstance(base, str) else base
    relation = card.get("base_model_relation") or "finetune"
    found = [*(card.get("tags") or []), *filter(None, [card.get("library_name")])]
    found += [f"license:{card['license']}"] if card.get("license") else []
    return found + [tag for name in bases for tag in (f"base_model:{name}", f"base_model:{relation}:{name}")]


def card_errors(content: str) -> list[str]:
    """What the Hub refuses in a card's YAML, as far as the documentation says."""
    found = FRONT_MATTER.match(content)
    if not found:
        return []
    try:
        card = yaml.safe_load(found[1]) or {}
    except yaml.YAMLError as error:
        return [f"YAML Metadata Error: {error}"]
    if not isinstance(card, dict):
        return ["YAML Metadata must be a mapping"]
    base, errors = card.get("base_model"), []
    for name in [base] if isinstance(base, str) else base or []:
        if not isinstance(name, str) or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name):
            errors.append(f'"base_model" with value "{name}" is not valid. Use a model id from https://hf.co/models.')
    errors += [f'"{key}" must not be empty' for key, value in card.items() if value is None]
    if not isinstance(card.get("license", ""), (str, list)):
        errors.append('"license" must be a string')
    if not isinstance(card.get("tags", []), list):
        errors.append('"tags" must be an array')
    if card.get("base_model_relation", RELATIONS[0]) not in RELATIONS:
        errors.append(f'"base_model_relation" must be one of {", ".join(RELATIONS)}')
    return errors
