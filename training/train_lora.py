"""Train a motion adapter (LoRA) for a video model.

    accelerate launch -q training/train_lora.py --config training/configs/tiny.yaml
    accelerate launch -q training/train_lora.py --config training/configs/tiny.yaml motion_weight=0 output_dir=out/baseline
    accelerate launch -q training/train_lora.py --config training/configs/hunyuan_video.yaml data=my_clips resume=true

    python training/train_lora.py --dry-run --config training/configs/hunyuan_video.yaml data=my_clips     checks and counts only
    accelerate launch -q training/train_lora.py --cache-only --config training/configs/hunyuan_video.yaml  clips and captions only

Run from the repository root, after `pip install -e ".[train]"`. Every setting is a field of `TrainConfig` in training/config.py
and can follow as key=value. `python training/train_lora.py ...` does the same in one process. The output folder then holds
`pytorch_lora_weights.safetensors` (load it with `pipeline.load_lora_weights(folder)`), `comfyui/NAME.safetensors` (for
ComfyUI), `config.yaml`, `provenance.json`, `log.jsonl`, `tensorboard/`, `report.md`, `report.html` and the newest
`checkpoint-N/`; with `rank=null` the folder `transformer/` takes the place of the adapter.

Exit codes: 0 the adapter is saved and verified, 2 an expected error (one line), 130 interrupted. `accelerate launch` turns any
failure into 1 and adds its own traceback; `accelerate launch -q` leaves that out.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that `training` and `phys_pipeline` are found

from phys_pipeline.errors import PhysPipelineError, first_line
from training.config import TrainConfig, load_config


def parse(arguments: list[str] | None = None) -> tuple[TrainConfig, str | None]:
    """The checked settings of a command line, and what it asks for instead of training: "dry-run", "cache-only" or None."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", metavar="FILE", help="YAML file; the defaults without one")
    instead = parser.add_mutually_exclusive_group()
    for name, what in (
        ("dry-run", "check everything, print what would be trained, and stop"),
        ("cache-only", "encode the clips and captions that the cache lacks, list what became of each, and stop"),
    ):
        instead.add_argument(f"--{name}", action="store_const", dest="instead", const=name, help=what)
    parser.add_argument(
        "--push-to-hub", metavar="OWNER/NAME", help="publish the finished adapter, as push_to_hub=OWNER/NAME does"
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings that replace those of the file")
    options = parser.parse_intermixed_args(arguments)
    pushed = [f"push_to_hub={options.push_to_hub}"] if options.push_to_hub else []
    return load_config(options.config, [*options.overrides, *pushed]), options.instead


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    for noisy in ("httpx", "httpx2", "tensorboard", "diffusers"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # its retries, each told twice; what failed is said at the end
    config = None
    try:
        config, instead = parse(arguments)
        if instead == "dry-run":
            from training.dry_run import dry_run

            print(dry_run(config))
            return 0
        if instead == "cache-only":
            from training.filling import cache_only

            if report := cache_only(config):
                print(report, flush=True)
            return 0
        from training.loop import train  # late: a wrong setting is reported before torch is loaded

        path = train(config)
    except PhysPipelineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # a folder that can't be written, a full disk
        where = f" ({error.filename})" if error.filename else ""
        print(f"error: {error.strerror or error}{where}: check output_dir, cache_dir and the free space", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"interrupted: {how_to_resume(config)}", file=sys.stderr)
        return 130
    if path is not None:
        print(f"saved {path}", flush=True)
        if config.push_to_hub is not None:
            push(config.output_dir, config.push_to_hub)
    return 0


def push(folder: str, repo_id: str) -> None:
    """Publish a finished run. Whatever happens to the upload, the run is saved and did not fail."""
    from phys_pipeline.adapters.publishing import publish

    try:
        done = publish(folder, repo_id, say=lambda text: print(text, file=sys.stderr, flush=True))
    except (Exception, KeyboardInterrupt) as error:
        print(f"not published: {first_line(error)}", file=sys.stderr)
        print(f"the run is saved; later: phys-pipeline publish {folder} --repo-id {repo_id}", file=sys.stderr, flush=True)
    else:
        print(f"published {done.repo_id}@{done.commit}{' (private)' if done.private else ''}", flush=True)


def how_to_resume(config: TrainConfig | None) -> str:
    """What to type after Ctrl-C."""
    from training.checkpoint import list_checkpoints

    found = list_checkpoints(config.output_dir) if config else []
    if not found:
        return "no checkpoint was written yet, so start again with the same command (checkpoint_every=N writes them earlier)"
    return f"the same command with resume=true continues from {found[-1]}"


if __name__ == "__main__":
    sys.exit(main())
