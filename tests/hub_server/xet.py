"""Large files in Xet's own storage: the released hf-xet takes a folder, ``local://...``, in place of a storage server."""

from __future__ import annotations

import os
import struct
import uuid
from pathlib import Path

_RECORD = 48  # bytes of every record of a shard
_LAST = b"\xff" * 32
_HAS_VERIFICATION, _HAS_METADATA = 1 << 31, 1 << 30


class XetFiles:
    """A folder of chunks that the client fills. A commit names a file by its SHA-256, the client by its Xet hash: the shards
    that the client leaves there hold both."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True)
        self.known: dict[str, tuple[str, int]] = {}  # {sha256: (xet hash, size)}
        self.read: set[Path] = set()

    @property
    def url(self) -> str:
        return f"local://{self.root}"

    def find(self, sha256: str) -> tuple[str, int] | None:
        """The Xet hash and size of a file, if it is here."""
        if sha256 not in self.known:
            for shard in set(self.root.rglob("*.mdb")) - self.read:
                self.known |= read_shard(shard.read_bytes())
                self.read.add(shard)
        return self.known.get(sha256)

    def restore(self, sha256: str, file: Path) -> None:
        """Put a file together again, for clients without Xet."""
        import hf_xet

        found = self.find(sha256)
        assert found is not None
        temporary = file.with_suffix(f".{uuid.uuid4().hex}")
        with hf_xet.XetSession().new_file_download_group(endpoint=self.url) as group:
            group.start_download_file(hf_xet.XetFileInfo(*found), str(temporary))
        os.replace(temporary, file)


def read_shard(data: bytes) -> dict[str, tuple[str, int]]:
    """{sha256: (xet hash, size)} of the files that a shard describes."""
    found = {}
    place = _RECORD  # after the shard's header
    while place + _RECORD <= len(data) and data[place : place + 32] != _LAST:
        name = _hex(data[place : place + 32])
        flags, segments = struct.unpack("<II", data[place + 32 : place + 40])
        place += _RECORD
        sizes = [struct.unpack_from("<I", data, place + number * _RECORD + 36)[0] for number in range(segments)]
        place += segments * _RECORD * (2 if flags & _HAS_VERIFICATION else 1)
        if flags & _HAS_METADATA:
            found[_hex(data[place : place + 32])] = (name, sum(sizes))
            place += _RECORD
    return found


def _hex(digest: bytes) -> str:
    """A hash as Xet prints it: four little-endian numbers."""
    return "".join(f"{number:016x}" for number in struct.unpack("<4Q", digest))
