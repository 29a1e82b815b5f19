"""``phys-pipeline publish FOLDER --repo-id OWNER/NAME``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from phys_pipeline.errors import AdapterError


def parser() -> argparse.ArgumentParser:
    """Options of the command."""
    found = argparse.ArgumentParser(
        prog="phys-pipeline publish",
        description="Publish an adapter on the Hugging Face Hub: weights for diffusers and ComfyUI, card, report and videos in "
        "one commit, which is downloaded again and compared. A new repository is private. The token is that of `hf auth login` "
        "or HF_TOKEN. After a failure the same command goes on where it stopped.",
    )
    found.add_argument("folder", metavar="FOLDER", help="output_dir of a finished run")
    found.add_argument("--repo-id", required=True, metavar="OWNER/NAME", help="repository, made if there is none")
    seen = found.add_mutually_exclusive_group()
    seen.add_argument("--private", dest="public", action="store_false", default=None, help="insist that it is private")
    seen.add_argument("--public", dest="public", action="store_true", default=None, help="make it public once it is proven")
    found.add_argument("--dry-run", action="store_true", help="check everything, list what would be sent, send nothing")
    found.add_argument("--revision", metavar="TAG", help="tag the commit, such as v1.0")
    found.add_argument("--base-model", metavar="OWNER/NAME", help="the base model's Hub id, if it was trained from a folder")
    found.add_argument("--timeout", type=float, metavar="SECONDS", help="limit of each transfer (default: by its size)")
    return found


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code. Raises AdapterError, with one line, on expected trouble."""
    options = parser().parse_args(arguments)
    if options.timeout is not None and not options.timeout > 0:
        raise AdapterError(f"--timeout is {options.timeout}: use a number of seconds above 0")
    from phys_pipeline.adapters.publishing import plan, publish

    if options.dry_run:
        contents = plan(options.folder, options.repo_id, tag=options.revision, base_model=options.base_model)
        for file in contents.files.values():
            print(f"{file.sha256}  {file.size:>12,}  {file.path}")
        visible = {True: "public, after it is proven", False: "private", None: "private if it is new, else as it is"}
        print(f"repository  {options.repo_id} ({visible[options.public]})")
        print(f"tag         {options.revision or 'none'}")
        print(f"together    {len(contents.files)} files, {contents.size / 1e6:.1f} MB; nothing was sent")
        for note in contents.notes:
            _say(note)
        return 0
    done = publish(
        options.folder, options.repo_id, public=options.public, tag=options.revision, base_model=options.base_model,
        seconds=options.timeout, say=_say,
    )  # fmt: skip
    print(f"{'published' if done.new else 'was there '}  https://huggingface.co/{done.repo_id}/tree/{done.tag or done.commit}")
    print(f"commit      {done.commit}")
    print(f"visibility  {'private; --public shows it' if done.private else 'public'}")
    print(f"fetch       phys-pipeline fetch {done.repo_id}@{done.tag or done.commit}")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
