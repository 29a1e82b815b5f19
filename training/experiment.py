"""The same adapter trained with different losses, on the embedded model: sweep, choice, test, tables.

    python training/experiment.py --plan                    what each cell costs here, and all of it
    python training/experiment.py --workers 2               everything; the same command goes on after an interruption
    python training/experiment.py --arms base_loss,coherence seeds=[0] prompts.test=24 report=out/trial.md
    python training/experiment.py --stage sweep             one stage: sweep, choose, test, tables

Settings are those of training/configs/experiment.yaml, and can follow as key=value (train.max_train_steps=100). The sweep trains
every setting of the candidates once and judges it on validation prompts; `choose` writes the choice down with its hash; `test`
trains the chosen settings with every seed and makes the test videos; `tables` writes the page and the reports. Nothing about a
test prompt is computed or printed before a choice is recorded. Each worker computes with one thread, so that numbers don't depend
on the number of workers. Exit codes: 0 done, 2 an expected error (one line), 130 interrupted.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that `training` and `phys_pipeline` are found

from phys_pipeline.errors import PhysPipelineError
from training.experiments.config import Experiment, load_experiment

DEFAULT = Path(__file__).resolve().parent / "configs" / "experiment.yaml"
STAGES = ("sweep", "choose", "test", "tables")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options of a command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=DEFAULT, metavar="FILE", help="default: training/configs/experiment.yaml")
    parser.add_argument("--arms", default="", metavar="NAMES", help="of the file; default all")
    parser.add_argument("--stage", choices=(*STAGES, "all"), default="all")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes (default: 1)")
    parser.add_argument("--plan", action="store_true", help="measure what it costs here, print it, and stop")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings that replace those of the file")
    return parser.parse_intermixed_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    options = parse(arguments)
    _prepare()
    given = sys.argv[1:] if arguments is None else arguments
    command = shlex.join(["python", "training/experiment.py", *given])
    try:
        arms = [name for name in options.arms.split(",") if name]
        run(load_experiment(options.config, options.overrides, arms), options.stage, options.workers, options.plan, command)
    except PhysPipelineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted: the same command goes on where it stopped", file=sys.stderr)
        return 130
    return 0


def run(experiment: Experiment, stage: str, workers: int, plan: bool, command: str) -> None:
    """Do a stage, or all of them."""
    from training.experiments.runner import Runner  # late: a wrong setting is reported before torch is loaded

    runner = Runner(experiment)
    if plan:
        from training.experiments.cost import measure_costs, plan_text

        print(plan_text(runner, measure_costs(runner)))
        return
    stages = STAGES if stage == "all" else (stage,)
    if "sweep" in stages:
        _together(experiment, "sweep", workers)
    if "choose" in stages:
        choice = runner.choose()
        from training.experiments.tables import sweep_text

        print(sweep_text(choice))
        print(f"\nchosen ({choice['hash'][:16]}): ours is {choice['ours']}; {choice['chosen']}", flush=True)
    if "test" in stages:
        runner.recorded_choice()  # no test video before
        _together(experiment, "test", workers)
    if "tables" in stages:
        from training.experiments.results import write_results

        print(write_results(runner, command))
        print(f"written to {experiment.report} and {experiment.output_dir}/reports/{Path(experiment.report).stem}/report.html")


def _together(experiment: Experiment, stage: str, workers: int) -> None:
    """Do the jobs of a stage in this process and ``workers`` - 1 others; what a dead one left, this one does."""
    _world(experiment)
    context = multiprocessing.get_context("spawn")
    others = [context.Process(target=_work, args=(experiment, stage), daemon=True) for _ in range(workers - 1)]
    for process in others:
        process.start()
    try:
        _work(experiment, stage)
    finally:
        for process in others:
            process.terminate()


def _world(experiment: Experiment) -> None:
    """Write the world before several processes want it."""
    from training.experiments.runner import Runner

    runner = Runner(experiment)
    print(f"world {runner.world_digest[:12]} in {experiment.world_folder}", flush=True)
    if any(arm.unflawed for arm in experiment.arms):
        print(f"its training clips without their flaws: {runner.unflawed_digest[:12]}", flush=True)


def _work(experiment: Experiment, stage: str) -> None:
    from training.experiments.runner import Runner

    _prepare()
    runner = Runner(experiment)
    runner.work(runner.sweep_jobs() if stage == "sweep" else runner.test_jobs(runner.recorded_choice()))


def _prepare() -> None:
    """One thread and no GPU: the numbers are those of any machine of this kind."""
    os.environ["ACCELERATE_USE_CPU"] = "true"
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch

    torch.set_num_threads(1)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    for name in ("httpx", "diffusers", "training"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("training.experiments").setLevel(logging.INFO)


if __name__ == "__main__":
    sys.exit(main())
