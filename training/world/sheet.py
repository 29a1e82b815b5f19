"""A contact sheet of the world's clips, to look at.

    python -m training.world.sheet out/world.png [--clips 48] [--seed 0] [--first 0] [--clean] [--held-out] [--spread 1]

Six frames of each clip under its caption; a flaw, which no caption tells, stands in brackets.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from phys_pipeline.atomic import atomic_file
from phys_pipeline.errors import PhysPipelineError
from training.evaluate_tiny import contact_sheet
from training.world.clips import world_clip


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--clips", type=int, default=48)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first clip")
    parser.add_argument("--clean", action="store_true", help="without flaws")
    parser.add_argument("--held-out", action="store_true", help="what training never shows")
    parser.add_argument("--spread", type=float, default=1.0)
    options = parser.parse_args(arguments)
    try:
        drawn = [
            world_clip(options.seed, index, flawed=not options.clean, held_out=options.held_out, spread=options.spread)
            for index in range(options.first, options.first + options.clips)
        ]
    except PhysPipelineError as error:
        print(f"world: {error}", file=sys.stderr)
        return 2
    captions = [clip.caption + (f" [{clip.flaw} {clip.strength:.1f}]" if clip.flaw else "") for clip in drawn]
    with atomic_file(options.output) as path:
        contact_sheet([clip.video for clip in drawn], captions, columns=3).save(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
