"""What of a run's folder is published: an allowlist, each file checked, nothing that names this machine or holds a secret."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phys_pipeline.adapters.card import CardFacts, Sample, check_card, hub_base_model, make_card, samples_of
from phys_pipeline.adapters.files import read_header
from phys_pipeline.adapters.formats import COMFYUI_FOLDER, WEIGHTS_FILE
from phys_pipeline.adapters.readers import open_adapter
from phys_pipeline.adapters.writers import check_same
from phys_pipeline.errors import AdapterError, ConfigError
from phys_pipeline.families import get_family
from phys_pipeline.hub.names import check_file_name, check_repo_id, check_tag

PROVENANCE, CARD, REPORT, CURVES, RESULTS = "provenance.json", "README.md", "report.md", "curves.png", "results.json"
TRANSFORMER_FOLDER = "transformer"  # where the trainer puts one that it trained in full
MOST_VIDEO_BYTES = 100 << 20
LICENCES = ("LICENSE", "NOTICE")  # the base model's, put into the folder by hand
_TEXTS = (".json", ".md", *LICENCES)
_MOST_TEXT_BYTES = 16 << 20
_PATHS = re.compile(
    r"(?<![\w./:@-])(?:/(?:home|Users|root|tmp|var|mnt|media|opt|srv|data|scratch|workspace|content|private|Volumes|work|nfs|gpfs|"
    r"lustre|storage|usr|etc|kaggle)/[^\s\"'<>|)\]]+|~/[^\s\"'<>|)\]]+|[A-Za-z]:\\[^\s\"']+|\\\\[A-Za-z][\w.-]+\\{1,4}[A-Za-z][\w.$-]+\\[^\s\"']*)|file://[^\s\"']+"
)
_SECRETS = re.compile(
    r"\bhf_[A-Za-z0-9]{16,}|\bapi_org_[A-Za-z0-9]{16,}|\bgh[opsu]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}|\bsk-[\w-]{20,}|"
    r"\bAKIA[0-9A-Z]{16}\b|\bxox[abpr]-[\w-]{10,}|\bAIza[\w-]{30,}|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)


@dataclass(frozen=True)
class PublishedFile:
    """A file as it will be in the repository: of the disk (``source``) or made here (``text``)."""

    path: str
    size: int
    sha256: str
    oid: str  # git's blob id
    source: Path | None = None
    text: str | None = None
    stamp: tuple[int, ...] = ()  # which file of the disk it was, and when it was last written

    def same_as(self, entry: Mapping[str, Any] | None) -> bool:
        """Whether what the Hub lists is this file."""
        if entry is None or entry["size"] != self.size:
            return False
        return entry["sha256"] == self.sha256 if entry["sha256"] else entry["oid"] == self.oid

    def check_unchanged(self) -> None:
        """Raise AdapterError if the file isn't the one any more that was looked at, as while a trainer still writes."""
        if self.source is not None and (not self.source.is_file() or _stamp(self.source) != self.stamp):
            raise AdapterError(f"{self.source} changed while it was being published: run the same command again when nothing "
                               "writes into the folder any more")  # fmt: skip


@dataclass(frozen=True)
class Contents:
    """Everything that one commit will hold."""

    folder: Path
    repo_id: str
    files: Mapping[str, PublishedFile]
    notes: tuple[str, ...]

    @property
    def weights(self) -> list[PublishedFile]:
        return [file for path, file in self.files.items() if path.endswith(".safetensors")]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files.values())

    def checksums(self) -> dict[str, str]:
        return {path: file.sha256 for path, file in self.files.items()}

    def missing(self, listed: Mapping[str, Any]) -> list[str]:
        """Paths that the Hub lacks or has with other bytes."""
        return [path for path, file in self.files.items() if not file.same_as(listed.get(path))]


def collect(folder: Path, repo_id: str, tag: str | None = None, base_model: str | None = None) -> Contents:
    """Check a run's folder and list what is published of it; nothing is sent or written. ``base_model`` is the Hub id of a base
    model that was trained from a local folder. Raises AdapterError, with one line, for anything that shouldn't be published."""
    check_repo_id(repo_id)
    if base_model is not None:
        check_repo_id(base_model)
    if tag is not None:
        check_tag(tag)
    provenance = _provenance(folder)
    comfyui = _check_weights(folder, str(provenance["family"]))
    paths = [WEIGHTS_FILE, *comfyui, PROVENANCE]
    paths += [name for name in (REPORT, CURVES, *LICENCES) if (folder / name).is_file()]
    validation, samples = _validation(folder)
    paths += validation
    files = {path: _file(folder, path) for path in paths}
    base = base_model or hub_base_model(provenance)
    notes = []
    if base is None:
        notes.append(f"the base model {provenance.get('base_model')!r} is no Hub id, so that the card links to none: name it "
                     "with --base-model OWNER/NAME")  # fmt: skip
    if (folder / CARD).is_file():
        files[CARD] = _file(folder, CARD)
        notes.append(f"{CARD} of the folder is used as the card")
    else:
        facts = CardFacts(repo_id, provenance, base, tag or "main", comfyui, samples, REPORT in files)
        files[CARD] = _made(CARD, make_card(facts))
    card = check_card(_text(files[CARD]), list(files))
    if card["license"] == "other" and LICENCES[0] not in files:
        notes.append(f"{card['license_name']} is a licence of its own, whose text usually has to go along: save it as "
                     f"{folder / LICENCES[0]}, and the notice it asks for as {LICENCES[1]}")  # fmt: skip
    _check_private(folder, files)
    return Contents(folder, repo_id, dict(sorted(files.items())), tuple(notes))


def _provenance(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise AdapterError(f"there is no folder {folder}: give the output_dir of a finished run")
    if not (folder / WEIGHTS_FILE).is_file() and (folder / TRANSFORMER_FOLDER).is_dir():
        raise AdapterError(f"{folder} holds a whole transformer that was trained, and this publishes adapters only: upload it "
                           "with `hf upload OWNER/NAME`, and write its card yourself")  # fmt: skip
    if not (folder / WEIGHTS_FILE).is_file():
        raise AdapterError(f"{folder} has no {WEIGHTS_FILE}: give the output_dir of a finished run that trained an adapter")
    try:
        content = json.loads((folder / PROVENANCE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise AdapterError(f"{folder} has no readable {PROVENANCE}, which says what the adapter is: publish a folder as the "
                           "trainer or save_adapter writes it") from error  # fmt: skip
    if not isinstance(content, dict) or not content.get("base_model") or not content.get("family"):
        raise AdapterError(f"{folder / PROVENANCE} names no family and base_model: publish a folder as the trainer writes it")
    return content


def _check_weights(folder: Path, family: str) -> list[str]:
    """Read every tensor of both files, which must be finite and make the same changes; the paths of ComfyUI's files."""
    opened = open_adapter(folder / WEIGHTS_FILE)
    layers = opened.read()
    if not any(layer.squared_norm() > 0 for layer in layers.values()):
        raise AdapterError(f"{folder / WEIGHTS_FILE} changes nothing: it was saved before its first training step")
    copies = sorted((folder / COMFYUI_FOLDER).glob("*.safetensors"))
    if not copies and _for_comfyui(family):
        copy = folder / COMFYUI_FOLDER / f"{folder.resolve().name}.safetensors"
        raise AdapterError(f"{folder} has no file for ComfyUI, which would ignore the other one: make it with `phys-pipeline "
                           f"adapter convert {folder} --to comfyui -o {copy}`")  # fmt: skip
    if len(copies) > 1:
        raise AdapterError(f"{folder / COMFYUI_FOLDER} holds {len(copies)} files: keep the one of this adapter")
    for copy in copies:
        check_file_name(copy.name)
        try:
            check_same(copy, layers)
        except AdapterError as error:
            raise AdapterError(f"{copy} is not the same adapter as {WEIGHTS_FILE}: make it again with `phys-pipeline adapter "
                               f"convert {folder} --to comfyui -o {copy}`") from error  # fmt: skip
    return [f"{COMFYUI_FOLDER}/{copy.name}" for copy in copies]


def _for_comfyui(family: str) -> bool:
    """Whether adapters of the family have a copy for ComfyUI."""
    try:
        return get_family(family).spec.comfyui
    except ConfigError:  # a family of another version
        return False


def _validation(folder: Path) -> tuple[list[str], list[Sample]]:
    """Results and videos of the base model and of the last validation."""
    names = [path.name for path in folder.glob("validation/step-*") if re.fullmatch(r"step-\d+", path.name)]
    steps = {int(name.removeprefix("step-")): folder / "validation" / name for name in names}
    last = steps[max(steps)] if steps else None
    paths: list[str] = []
    samples: list[Sample] = []
    for where in filter(None, [folder / "validation" / "base", last]):
        if (where / RESULTS).is_file():
            below = where.relative_to(folder)
            try:
                found = samples_of(json.loads((where / RESULTS).read_text(encoding="utf-8")), below)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise AdapterError(f"{where / RESULTS} is not as the trainer writes it: remove the folder {where}") from error
            paths += [(below / RESULTS).as_posix()]
            paths += [file for sample in found for file in (sample.file, sample.pair) if file]
            samples = found
    missing = next((path for path in paths if not (folder / path).is_file()), None)
    if missing:
        raise AdapterError(f"{folder / missing} is missing: train again, or remove the folder {folder / 'validation'}")
    size = sum((folder / path).stat().st_size for path in paths)
    if size > MOST_VIDEO_BYTES:
        raise AdapterError(f"the videos of {folder / 'validation'} have {size / 1e6:.0f} MB, more than "
                           f"{MOST_VIDEO_BYTES / 1e6:.0f}: validate with fewer or smaller ones")  # fmt: skip
    return paths, samples


def _file(folder: Path, path: str) -> PublishedFile:
    check_file_name(path)
    source = folder / path
    if folder.resolve() not in source.resolve().parents:
        raise AdapterError(f"{source} is a link out of the folder, or lies in one: replace it by the file")
    stamp, size, sha256 = _stamp(source), source.stat().st_size, hashlib.sha256()
    oid = hashlib.sha1(b"blob %d\0" % size)
    with source.open("rb") as file:
        while piece := file.read(1 << 20):
            sha256.update(piece)
            oid.update(piece)
    return PublishedFile(path, size, sha256.hexdigest(), oid.hexdigest(), source=source, stamp=stamp)


def _stamp(source: Path) -> tuple[int, ...]:
    about = source.stat()
    return (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns)


def _made(path: str, text: str) -> PublishedFile:
    data = text.encode()
    oid = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    return PublishedFile(path, len(data), hashlib.sha256(data).hexdigest(), oid, text=text)


def _text(file: PublishedFile) -> str:
    if file.text is not None:
        return file.text
    assert file.source is not None
    if file.size > _MOST_TEXT_BYTES:
        raise AdapterError(f"{file.source} has {file.size / 1e6:.0f} MB, too much for a text: remove it")
    try:
        return file.source.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise AdapterError(f"{file.source} is not UTF-8 text: write it again") from error


def _check_private(folder: Path, files: Mapping[str, PublishedFile]) -> None:
    """No text, and no metadata of a weights file, may hold a secret or a path of this machine; no picture or video a secret or
    the place of the run, which a program may have noted in it. Other paths can't be told from chance in their bytes."""
    places = {str(path) for path in (Path.home(), folder.resolve(), folder.resolve().parent, Path.cwd()) if len(path.parts) > 2}
    secrets = {
        value for name, value in os.environ.items() if re.search("TOKEN|SECRET|PASSWORD|API_?KEY", name) and len(value) > 11
    }
    for file in files.values():
        for where, text, names_paths in _texts(file):
            if _SECRETS.search(text) or any(secret in text for secret in secrets):
                raise AdapterError(
                    f"{where} holds what looks like an access token or key: remove it, and revoke it if it was shared"
                )
            found = _PATHS.search(text) if names_paths else None
            path = found[0] if found else next((place for place in places if place in text), None)
            if path:
                raise AdapterError(f"{where} holds a path of this machine, {path[:80]!r}: remove it")


def _texts(file: PublishedFile) -> Iterator[tuple[str, str, bool]]:
    """What can be read in a file: where it is, the text, and whether what looks like a path there is one."""
    if file.path.endswith(_TEXTS):
        for number, line in enumerate(_text(file).splitlines(), 1):
            yield f"{file.path}, line {number},", line, True
        return
    assert file.source is not None
    if file.path.endswith(".safetensors"):
        for value in read_header(file.source).metadata.values():
            yield f"the metadata of {file.path}", value, True
    else:
        yield file.path, file.source.read_bytes().decode("latin-1"), False
