"""``phys-pipeline fetch OWNER/NAME[@REVISION]``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path


def parser() -> argparse.ArgumentParser:
    """Options of the command."""
    found = argparse.ArgumentParser(
        prog="phys-pipeline fetch",
        description="Download an adapter from the Hugging Face Hub: one safetensors file of one commit, its checksum compared. "
        "It lands in the Hub's cache, where `generate --adapter OWNER/NAME` finds it without a network.",
    )
    found.add_argument("source", metavar="OWNER/NAME[@REVISION]", help="repository, and a branch, tag or commit")
    found.add_argument("-o", "--output", metavar="FOLDER", help="also copy it there, such as ComfyUI/models/loras")
    found.add_argument("--file", metavar="NAME", help="another file of the repository, such as comfyui/NAME.safetensors")
    found.add_argument("--timeout", type=float, metavar="SECONDS", help="give up after so long (default: by its size)")
    return found


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code. Raises AdapterError, with one line, on expected trouble."""
    options = parser().parse_args(arguments)
    from phys_pipeline.adapters.hub import copy_adapter, fetch_adapter
    from phys_pipeline.adapters.readers import open_adapter

    fetched = fetch_adapter(options.source, weight_name=options.file, seconds=options.timeout)
    opened = open_adapter(fetched.file)
    file = copy_adapter(fetched, Path(options.output)) if options.output else fetched.file
    print(f"adapter  {fetched.source.repo_id}@{fetched.commit}")
    print(f"format   {opened.format}, {len(opened.pairs)} layers")
    print(f"sha256   {fetched.sha256}")
    print(f"file     {file}")
    return 0
