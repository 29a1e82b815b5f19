"""The routes by which bytes come and go: resolve and its redirect, the download port, and Git LFS uploads."""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from hub_server.api import Api
from hub_server.store import Refused

PIECE = 1 << 16


class Files:
    """Handlers for files. ``downloads`` is the address of the second port, where large files are: the client takes a redirect
    to its own address for a renamed repository."""

    def __init__(self, api: Api) -> None:
        self.api, self.store, self.downloads = api, api.store, ""
        self.part_size: int | None = None  # bytes; larger files are uploaded in parts

    def routes(self) -> list[Route]:
        repo, lfs = "/{owner}/{name}", "/{owner}/{name}.git/info/lfs"
        found = [
            Route("/upload/{oid}", self.put, methods=["PUT"]),
            Route("/upload/{oid}/complete", self.complete, methods=["POST"]),
            Route("/upload/{oid}/{part:int}", self.put, methods=["PUT"]),
            Route("/download/{oid}", self.download, methods=["GET", "HEAD"]),
        ]
        for prefix in ("", "/{kind}"):
            found += [
                Route(f"{prefix}{lfs}/objects/batch", self.batch, methods=["POST"]),
                Route(f"{prefix}{lfs}/verify", self.verify, methods=["POST"]),
                Route(f"{prefix}{repo}/resolve/{{revision}}/{{path:path}}", self.resolve, methods=["GET", "HEAD"]),
            ]
        return found

    async def resolve(self, request: Request) -> Response:
        request.path_params.setdefault("kind", "models")
        repo, kind = self.api.repo(request, content=True), request.path_params["kind"]
        sha, path = repo.sha(unquote(request.path_params["revision"])), request.path_params["path"]
        entry = repo.commits[sha].tree.get(path)
        if entry is None:
            raise Refused(404, "Entry not found", "EntryNotFound", X_Repo_Commit=sha)
        headers = {"X-Repo-Commit": sha, "Accept-Ranges": "bytes", "ETag": f'"{entry.oid}"'}
        if entry.sha256 is None:
            return send(request, self.store.read(entry), headers)
        headers |= {"X-Linked-Etag": f'"{entry.sha256}"', "X-Linked-Size": str(entry.size)}
        if self.store.xet and (stored := self.store.xet.find(entry.sha256)):
            route = f"{self.api.base}/api/{kind}/{repo.id}/xet-read-token/{sha}"
            headers |= {"X-Xet-Hash": stored[0], "X-Xet-Refresh-Route": route, "Link": f'<{route}>; rel="xet-auth"'}
        return Response(status_code=302, headers={**headers, "Location": f"{self.downloads}/download/{entry.sha256}"})

    async def download(self, request: Request) -> Response:
        oid = request.path_params["oid"]
        file = self.store.large_file(oid)
        if not file.exists():
            if self.store.xet is None or self.store.xet.find(oid) is None:
                raise Refused(404, "no such object")
            self.store.xet.restore(oid, file)
        return send(request, file.read_bytes(), {"ETag": f'"{oid}"', "Accept-Ranges": "bytes"})

    async def batch(self, request: Request) -> Response:
        request.path_params.setdefault("kind", "models")
        repo, body = self.api.repo(request, write=True), await request.json()
        objects, in_parts = [], False
        for item in body["objects"]:
            oid, size = item["oid"], item["size"]
            answer: dict[str, Any] = {"oid": oid, "size": size}
            if not self.store.large_file(oid).exists():
                upload: dict[str, Any] = {"href": f"{self.downloads}/upload/{oid}"}
                if self.part_size and size > self.part_size and "multipart" in body["transfers"]:
                    in_parts = True
                    parts = {str(part): f"{upload['href']}/{part}" for part in range(1, -(-size // self.part_size) + 1)}
                    upload = {"href": f"{upload['href']}/complete", "header": {"chunk_size": str(self.part_size), **parts}}
                verify = {"href": f"{self.api.base}/{repo.id}.git/info/lfs/verify"}
                answer |= {"authenticated": True, "actions": {"upload": upload, "verify": verify}}
            objects.append(answer)
        content = {"transfer": "multipart" if in_parts else "basic", "objects": objects}
        return JSONResponse(content, media_type="application/vnd.git-lfs+json")

    async def put(self, request: Request) -> Response:
        oid, part = request.path_params["oid"], request.path_params.get("part")
        final = self.store.large_file(oid)
        if part:
            final = final.with_suffix(f".{part}")
        temporary, digest = final.with_suffix(f".{uuid.uuid4().hex}"), hashlib.sha256()
        with temporary.open("wb") as file:
            async for piece in request.stream():
                digest.update(piece)
                file.write(piece)
        self._keep(temporary, final, digest.hexdigest() if part is None else None, oid)
        return Response(headers={"ETag": f'"{digest.hexdigest()[:32]}"'})

    async def complete(self, request: Request) -> Response:
        body, final = await request.json(), self.store.large_file(request.path_params["oid"])
        temporary, digest = final.with_suffix(f".{uuid.uuid4().hex}"), hashlib.sha256()
        with temporary.open("wb") as file:
            for part in sorted(part["partNumber"] for part in body["parts"]):
                data = final.with_suffix(f".{part}").read_bytes()
                digest.update(data)
                file.write(data)
        self._keep(temporary, final, digest.hexdigest(), final.name)
        return JSONResponse({})

    def _keep(self, temporary: Any, final: Any, found: str | None, wanted: str) -> None:
        if found not in (None, wanted):
            temporary.unlink()
            raise Refused(400, "the bytes have another checksum")
        os.replace(temporary, final)

    async def verify(self, request: Request) -> Response:
        if not self.store.has((await request.json())["oid"]):
            raise Refused(404, "no such object")
        return JSONResponse({})


def send(request: Request, data: bytes, headers: dict[str, str]) -> Response:
    """Bytes, or the part of them that a Range asks for."""
    status, total = 200, len(data)
    wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("range", ""))
    if wanted:
        first, last = int(wanted[1]), min(int(wanted[2] or total - 1), total - 1)
        if first >= total:
            return Response(status_code=416, headers={"Content-Range": f"bytes */{total}"})
        data, status = data[first : last + 1], 206
        headers["Content-Range"] = f"bytes {first}-{last}/{total}"
    headers["Content-Length"] = str(len(data))
    if request.method == "HEAD":
        return Response(status_code=status, headers=headers)

    def pieces() -> Iterator[bytes]:
        for start in range(0, len(data), PIECE):
            yield data[start : start + PIECE]

    return StreamingResponse(pieces(), status, headers, media_type="application/octet-stream")
