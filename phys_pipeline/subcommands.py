"""``phys-pipeline GROUP NAME ...``: a command that is a group of commands, each with a parser of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from phys_pipeline.errors import ConfigError


def run_subcommand(
    group: str, usage: str, commands: Mapping[str, Callable[[Sequence[str]], int]], arguments: Sequence[str]
) -> int:
    """Run the command that the first argument names and return its exit code; without one, or with --help, print ``usage``.

    Raises ConfigError for an unknown name, and what the command raises.
    """
    name, *rest = arguments or ["--help"]
    if name in ("-h", "--help"):
        print(usage)
        return 0
    if name not in commands:
        raise ConfigError(f"unknown command {group} {name!r}: use one of {', '.join(commands)}")
    return commands[name](rest)
