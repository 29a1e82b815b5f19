"""``phys-pipeline adapter inspect|convert|verify|merge|extract-metadata``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from phys_pipeline.atomic import atomic_file
from phys_pipeline.errors import AdapterError
from phys_pipeline.subcommands import run_subcommand

_USAGE = """usage: phys-pipeline adapter inspect FILE [--json]
       phys-pipeline adapter convert FILE --to diffusers|comfyui|original -o FILE.safetensors [--model MODEL]
       phys-pipeline adapter verify FILE --model MODEL
       phys-pipeline adapter merge FILE --model MODEL -o FOLDER [--weight W]
       phys-pipeline adapter extract-metadata FILE [-o FILE.json]

`phys-pipeline adapter convert --help` says more."""


def main(arguments: Sequence[str]) -> int:
    """Run one of the commands; returns the exit code. Raises PhysPipelineError, with one line, on expected trouble."""
    commands: dict[str, Callable[[Sequence[str]], int]] = {
        "inspect": inspect, "convert": convert, "verify": verify, "merge": merge, "extract-metadata": extract_metadata,
    }  # fmt: skip
    return run_subcommand("adapter", _USAGE, commands, arguments)


def inspect(arguments: Sequence[str]) -> int:
    """`phys-pipeline adapter inspect`; exit code 2 if the file can't be applied."""
    parser = _parser("inspect", "Say what a LoRA file is: format, ranks and alphas, base model, provenance, damage.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    from phys_pipeline.adapters.inspection import describe_adapter, inspect_adapter
    from phys_pipeline.adapters.lora import find_adapter

    report = inspect_adapter(find_adapter(options.file))
    print(_json(report) if options.json else describe_adapter(report))
    return 2 if report["problem"] else 0


def convert(arguments: Sequence[str]) -> int:
    """`phys-pipeline adapter convert`."""
    parser = _parser(
        "convert",
        "Write a HunyuanVideo or Wan LoRA of any trainer for diffusers or for ComfyUI, read back and compared; or an Open-Sora "
        "or MVDiT LoRA of this package in the layout of the model's official checkpoint (--to original, with --model).",
    )
    parser.add_argument("--to", required=True, choices=("diffusers", "comfyui", "original"), help="whose names to use")
    parser.add_argument("--model", help="for --to original: the base model's converted folder, of which only the config is read")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="file to write, .safetensors")
    options = parser.parse_args(arguments)
    from phys_pipeline.adapters.formats import PHYS_METADATA
    from phys_pipeline.adapters.lora import find_adapter
    from phys_pipeline.adapters.original import write_original
    from phys_pipeline.adapters.readers import open_adapter
    from phys_pipeline.adapters.writers import write_adapter

    output = _output(options, ".safetensors")
    if (options.to == "original") != (options.model is not None):
        raise AdapterError("--to original needs --model, the base model's folder; the others take none")
    opened = open_adapter(find_adapter(options.file))
    layers = opened.read()
    kept = {name: text for name, text in opened.header.metadata.items() if name == PHYS_METADATA}
    if options.model is None:
        if options.to == "comfyui":
            _check_comfyui(opened.provenance.get("family"))
        write_adapter(output, layers, options.to, kept)
    else:
        written = write_original(output, layers, options.model, kept)
        print(f"original {written} layers")
    print(f"layers   {len(layers)} of {opened.format}, {len(opened.skipped)} tensors left out\nadapter  {output}")
    for key in opened.skipped:
        print(f"left out {key!r}", file=sys.stderr)
    return 0


def verify(arguments: Sequence[str]) -> int:
    """`phys-pipeline adapter verify`."""
    parser = _parser("verify", "Apply a LoRA to a base model and measure how much one prediction changes; nothing is an error.")
    parser.add_argument("--model", required=True, help='"tiny" (embedded), a diffusers folder or a Hub id')
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="of the base (default: fp32)")
    options = parser.parse_args(arguments)
    import torch

    from phys_pipeline.adapters.inspection import verify_adapter
    from phys_pipeline.adapters.lora import find_adapter
    from phys_pipeline.families import load_model

    file = find_adapter(options.file)
    model = load_model(options.model, torch.float32 if options.precision == "fp32" else torch.bfloat16)
    found = verify_adapter(file, model)
    print(f"layers       {found['layers']} changed, {found['skipped']} tensors left out")
    print(f"mean change  {found['mean_change']:.3g} of an output of {found['mean_output']:.3g} (absolute values)")
    return 0


def merge(arguments: Sequence[str]) -> int:
    """`phys-pipeline adapter merge`."""
    parser = _parser("merge", "Write a copy of a base model with a LoRA merged into its weights.")
    parser.add_argument("--model", required=True, help='"tiny" (embedded), a diffusers folder or a Hub id')
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER", help="model folder to write")
    parser.add_argument("--weight", type=float, default=1.0, help="strength of the LoRA (default: 1)")
    options = parser.parse_args(arguments)
    from phys_pipeline.adapters.lora import find_adapter
    from phys_pipeline.adapters.merging import merge_adapter

    output = Path(options.output)
    if output.exists():
        raise AdapterError(f"{output} exists: choose a new folder")
    count = merge_adapter(find_adapter(options.file), options.model, output, options.weight)
    print(f"layers  {count} merged\nmodel   {output}")
    return 0


def extract_metadata(arguments: Sequence[str]) -> int:
    """`phys-pipeline adapter extract-metadata`."""
    parser = _parser("extract-metadata", "Print, or write with -o, the metadata inside a safetensors file as JSON.")
    parser.add_argument("-o", "--output", metavar="FILE", help="file to write, .json")
    options = parser.parse_args(arguments)
    from phys_pipeline.adapters.inspection import stored_metadata
    from phys_pipeline.adapters.lora import find_adapter

    text = _json(stored_metadata(find_adapter(options.file)))
    if not options.output:
        print(text)
        return 0
    with atomic_file(_output(options, ".json")) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
    print(f"metadata  {options.output}")
    return 0


def _parser(name: str, description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"phys-pipeline adapter {name}", description=description)
    parser.add_argument("file", metavar="FILE", help="LoRA file, a folder with one, or a Hub id")
    return parser


def _output(options: argparse.Namespace, suffix: str) -> Path:
    output = Path(options.output)
    if output.suffix != suffix or output.is_dir():
        raise AdapterError(f"{output} is no name for the output: end it with {suffix}")
    if output.resolve() == Path(options.file).resolve():
        raise AdapterError(f"{output} is the input: choose another name")
    return output


def _check_comfyui(family: object) -> None:
    """Raise AdapterError for a family that ComfyUI lacks: some name their layers as HunyuanVideo does and are another model."""
    from phys_pipeline.families import family_names, get_family

    if family in family_names() and not get_family(str(family)).spec.comfyui:
        raise AdapterError(f"{family} has no file for ComfyUI: its own loader doesn't know the model, use our pipeline nodes")


def _json(content: object) -> str:
    return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False)
