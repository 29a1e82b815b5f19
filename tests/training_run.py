"""What tests of whole training runs share: a random model, clips, a cache, and the settings of a short run."""

import json
import os
import signal
import socket
import time
from pathlib import Path

from safetensors.torch import load_file
from tiny import save_clips, save_tiny

from training.config import TrainConfig

ADAPTER = "pytorch_lora_weights.safetensors"


def make_base(root: Path, clips: int = 3, frames: int = 13) -> Path:
    """A tiny random pipeline and captioned clips on disk, below `root`."""
    save_tiny(root / "model")
    save_clips(root / "clips", count=clips, frames=frames)
    return root


def settings(base, output, **changes):
    values = {
        "model": str(base / "model"), "data": str(base / "clips"), "cache_dir": str(base / "cache"), "output_dir": str(output),
        "family": "hunyuan_video",
        "frames": 5, "height": 16, "width": 16, "rank": 2, "precision": "fp32", "shift": 1.0, "learning_rate": 1e-2,
        "lr_warmup_steps": 2, "train_batch_size": 2, "max_train_steps": 10, "checkpoint_every": 5, "seed": 3,
    }  # fmt: skip
    return TrainConfig(**{**values, **changes})


def records(output):
    return [json.loads(line) for line in (Path(output) / "log.jsonl").read_text().splitlines()]


def weights(output):
    return load_file(Path(output) / ADAPTER)


def run_in_child(config, exit_at=None, environment=None):
    """Target of a child process: train, or die without any clean-up just before the `exit_at`-th rename."""
    import logging

    os.environ.update({"ACCELERATE_USE_CPU": "true", **(environment or {})})
    logging.disable(logging.CRITICAL)
    renamed, count = os.replace, 0

    def replace(source, target, **options):
        nonlocal count
        count += 1
        if count == exit_at:
            os._exit(77)
        renamed(source, target, **options)

    os.replace = replace

    from training.loop import train

    train(config, progress=False)


def run_all_in_child(configs, environment):
    """Target of a child process that is one of several: the runs of `configs`, one after the other."""
    from accelerate.state import AcceleratorState

    for config in configs:
        run_in_child(config, environment=environment)
        AcceleratorState._reset_state(True)  # the process group stays


def start_two(context, configs):
    """Two child processes that do the runs of `configs` together."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    world = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    children = [
        context.Process(target=run_all_in_child, args=(configs, {**world, "RANK": rank, "LOCAL_RANK": rank})) for rank in "01"
    ]
    for child in children:
        child.start()
    return children


def finish(children, timeout):
    """Wait for child processes, which must all succeed in time; none is left running."""
    deadline = time.monotonic() + timeout
    try:
        for child in children:
            child.join(max(0.0, deadline - time.monotonic()))
        assert [child.exitcode for child in children] == [0] * len(children)
    finally:
        for child in children:
            child.kill()
            child.join()


def encode_after_a_death(settings, kind, item):
    """The third clip's process is killed just before the entry gets its name, once."""
    from training.encoding import do_in_worker

    died = Path(json.loads(settings)["data"]) / "died.while.encoding"
    rename = os.replace

    def replace_or_die(source, target):
        if not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, target)

    if getattr(item, "name", None) == "2.mp4":
        os.replace = replace_or_die
    try:
        return do_in_worker(settings, kind, item)
    finally:
        os.replace = rename
