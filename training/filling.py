"""Filling the cache with a source of clips: by one process, the processes of a launch, those of a machine, or a cluster."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from phys_pipeline.errors import DataError, ModelError
from phys_pipeline.families import VideoFamily
from phys_pipeline.tables import write_table
from training.cache import CachedDataset, collect
from training.config import TrainConfig
from training.encoding import DTYPES, Encoder, Outcome, do_in_worker
from training.launch import start_accelerator
from training.model_family import model_family
from training.pool import Engine, Failure, Job
from training.sources import Clip, Skipped, join_digests, reason_table, select_entries

log = logging.getLogger(__name__)

LIST_FILE = "clips.jsonl"  # in the cache folder, written by cache-only runs
_SKIPPED_SHOWN = 50  # a filtered table of a million clips should not fill the log
_MEET_SECONDS = 60.0


class Spread(Protocol):
    """Does one kind of work, "digest", "clip" or "caption", on all items; the results are in the order of the items."""

    def __call__(self, kind: str, items: Sequence[Any]) -> list[Any]: ...


def in_rounds(
    items: Iterable[Any],
    work: Callable[[Any], Any],
    gather: Callable[[list[bool]], list[bool]],
    seconds: float = _MEET_SECONDS,
) -> list[Any]:
    """`work(item)` of every item, in order, while other processes do theirs.

    The processes meet every `seconds`, or one item where that takes longer, until all are done: however uneven their shares, none
    waits for long in a collective, whose time-out would end the run.
    """
    waiting, done, left = iter(items), [], True
    while True:
        until = time.monotonic() + seconds
        for item in waiting:
            done.append(work(item))
            if time.monotonic() >= until:
                break
        else:
            left = False
        if not any(gather([left])):
            return done


def over_ranks(encoder: Encoder, rank: int, world_size: int, gather: Callable[[list[Any]], list[Any]]) -> Spread:
    """The processes of one launch take every `world_size`-th item each; `gather` joins their lists."""

    def spread(kind: str, items: Sequence[Any]) -> list[Any]:
        own = list(enumerate(items))[rank::world_size]
        found = dict(gather(in_rounds(own, lambda numbered: (numbered[0], encoder.do(kind, numbered[1])), gather)))
        return [found[number] for number in range(len(items))]

    return spread


def over_engine(
    encoder: Encoder, engine: Engine, workers: int, progress: Callable[[int, int], None] = lambda done, total: None
) -> Spread:
    """Processes of this machine or of a cluster encode what the cache lacks; a clip whose process dies twice is skipped."""

    def spread(kind: str, items: Sequence[Any]) -> list[Any]:
        results = [encoder.cached(kind, item) for item in items]
        settings = json.dumps(encoder.config.to_dict())
        jobs = [Job(i, (settings, kind, item)) for i, item in enumerate(items) if results[i] is None]
        for count, (job, result) in enumerate(engine(jobs, workers, do_in_worker), 1):
            if isinstance(result, Exception):
                raise result
            if isinstance(result, Failure):
                if kind == "caption":
                    raise ModelError(f"the caption {items[job.key]!r} can't be encoded: {result.reason}")
                result = Outcome("skipped", reason=result.reason)
            results[job.key] = result
            progress(count, len(jobs))
        return results

    return spread


@dataclass(frozen=True)
class Filled:
    """What a run did to the cache: every clip of a source with its outcome, and how many captions were encoded and reused."""

    clips: list[tuple[Clip, Outcome]]
    skipped: list[Skipped]  # before anything was decoded: filtered, missing, without a caption
    captions_encoded: int
    captions_reused: int

    def all_skipped(self) -> list[Skipped]:
        """Every clip that is not used, with its reason."""
        return self.skipped + [Skipped(clip.name, o.reason) for clip, o in self.clips if o.status == "skipped"]

    def count(self, status: str) -> int:
        """Clips whose outcome is `status`."""
        return sum(outcome.status == status for _, outcome in self.clips)


def fill_cache(encoder: Encoder, spread: Spread) -> Filled:
    """Encode every clip of the settings' `data`, and the captions of those that are used; clips of equal bytes once."""
    config = encoder.config
    entries, skipped = select_entries(config)
    paths = list(dict.fromkeys(entry.path for entry in entries))
    digests = dict(zip(paths, spread("digest", paths), strict=True))
    clips, unreadable = join_digests(entries, digests)
    of_digest = {clip.digest: clip for clip in reversed(clips)}  # the first of equal ones gives the entry its name
    unique = [clip for clip in clips if of_digest[clip.digest] is clip]
    outcomes = dict(zip((clip.digest for clip in unique), spread("clip", unique), strict=True))
    used = [clip for clip in clips if outcomes[clip.digest].status != "skipped"]
    captions = list(dict.fromkeys([clip.caption for clip in used] + ([""] if used and config.caption_dropout > 0 else [])))
    spoken = spread("caption", captions)
    encoder.release()
    encoded = sum(outcome.status == "encoded" for outcome in spoken)
    found = []
    for clip in clips:
        outcome = outcomes[clip.digest]
        again = outcome.status == "encoded" and of_digest[clip.digest] is not clip
        found.append((clip, replace(outcome, status="reused") if again else outcome))
    return Filled(found, skipped + unreadable, encoded, len(captions) - encoded)


def prepare_dataset(
    config: TrainConfig,
    family: VideoFamily,
    *,
    device: torch.device,
    vae_dtype: torch.dtype = torch.float32,
    text_dtype: torch.dtype = torch.float32,
    rank: int = 0,
    world_size: int = 1,
    gather: Callable[[list[Any]], list[Any]] = list,
) -> tuple[CachedDataset, Any]:
    """Find, encode what the cache lacks, and list the samples; returns the data set and the VAE (on the CPU).

    Each of `world_size` processes encodes its share, and `gather` joins their lists. Text encoders are loaded only when a caption
    is new. Logs what was reused and every skipped clip.
    """
    encoder = Encoder(config, family, device, vae_dtype, text_dtype)
    filled = fill_cache(encoder, over_ranks(encoder, rank, world_size, gather))
    skipped = filled.all_skipped()
    for s in skipped[:_SKIPPED_SHOWN]:
        log.warning("skipped %s: %s", s.name, s.reason)
    if len(skipped) > _SKIPPED_SHOWN:
        log.warning("and %d more clips; `phys-pipeline data inspect` lists them all", len(skipped) - _SKIPPED_SHOWN)
    dataset = collect([clip for clip, _ in filled.clips], skipped, config, encoder.vae_identity, encoder.text_identity)
    log.info("clips: %d used, %d skipped; %d samples", len(dataset.clips), len(skipped), len(dataset))
    log.info(
        "cache %s: encoded %d clips and %d captions, reused %d and %d",
        config.cache_dir, filled.count("encoded"), filled.captions_encoded, filled.count("reused"), filled.captions_reused,
    )  # fmt: skip
    return dataset, encoder.vae


def cache_only(config: TrainConfig) -> str | None:
    """Encode `data` and `validation_data` with the processes of this launch; returns the report, None on all but the first.

    Raises PhysPipelineError as training would, and DataError where no clip can be used.
    """
    from accelerate.utils import gather_object

    accelerator = start_accelerator(replace(config, num_processes=None))  # that number is the training run's
    if not accelerator.is_main_process:
        logging.getLogger("training").setLevel(logging.WARNING)
    main, world = accelerator.is_main_process, (accelerator.process_index, accelerator.num_processes)
    config, family = model_family(config)
    dtypes = (DTYPES[config.vae_precision], DTYPES[config.precision])
    encoder = Encoder(config, family, accelerator.device, *dtypes)
    return cache_report(encoder, over_ranks(encoder, *world, gather_object), write=main)


def cache_report(encoder: Encoder, spread: Spread, write: bool = True) -> str | None:
    """Fill the cache and say what was done; with `write`, the list of all clips goes into the cache folder.

    Raises DataError where no clip of a source can be used, after the list is written.
    """
    config = encoder.config
    settings = [config, *([config.for_validation()] if config.validation_data else [])]
    sources, filled = [own.data for own in settings], []
    for own in settings:
        encoder.config = own
        filled.append(fill_cache(encoder, spread))
    encoder.config = config
    if not write:
        return None
    file = Path(config.cache_dir) / LIST_FILE
    rows: list[dict[str, Any]] = []
    for source, part in zip(sources, filled, strict=True):
        rows += [{"data": source, "video": s.name, "status": "skipped", "reason": s.reason} for s in part.skipped]
        rows += [
            {"data": source, "video": c.name, "status": o.status, "windows": o.windows, "reason": o.reason} for c, o in part.clips
        ]
    write_table(file, rows, ("data", "video", "status", "windows", "reason"))
    skipped = [s for part in filled for s in part.all_skipped()]
    encoded, reused = (sum(part.count(status) for part in filled) for status in ("encoded", "reused"))
    spoken, known = (sum(counts) for counts in zip(*((p.captions_encoded, p.captions_reused) for p in filled), strict=True))
    lines = [
        f"{'':10}{'encoded':>10}{'reused':>10}{'skipped':>10}",
        f"{'clips':10}{encoded:10d}{reused:10d}{len(skipped):10d}",
        f"{'captions':10}{spoken:10d}{known:10d}{'':>10}".rstrip(),
        *(f"skipped {s.name}: {s.reason}" for s in skipped[:_SKIPPED_SHOWN]),
    ]
    if len(skipped) > _SKIPPED_SHOWN:
        lines.append(f"and {len(skipped) - _SKIPPED_SHOWN} more")
    lines.append(f"every clip: {file}")
    for source, part in zip(sources, filled, strict=True):
        if len(part.clips) == part.count("skipped"):
            raise DataError(f"no usable clip in {source}: {reason_table(part.all_skipped()) or 'it holds no clip'}")
    return "\n".join(lines)
