"""The words of `lockstep ckpt`: argv -> one function of `lockstep.ckpt`."""

from pathlib import Path
from typing import Annotated

import typer

from lockstep.cli_help import Verb

ckpt_app = typer.Typer(
    help="Look into checkpoints, ours and others: what is in it, is it whole, its weights as a file, two compared.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

CKPT_EXAMPLES = """
Examples:
lockstep ckpt show runs/scenes
lockstep ckpt verify runs/scenes
lockstep ckpt convert epoch=9.ckpt weights.safetensors --strip model.
lockstep ckpt diff a.pt b.safetensors --tolerance 1e-6
"""

Source = Annotated[Path, typer.Argument(metavar="PATH", help="A run, a checkpoint's folder, or a file.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Limit = Annotated[int, typer.Option(min=0, metavar="N", help="So many lines at most; 0: all.")]
Key = Annotated[str | None, typer.Option(metavar="NAME", help="Which part, where several could be the weights: ema.")]


@ckpt_app.command(cls=Verb)
def show(
    path: Source,
    pattern: Annotated[
        str | None, typer.Option("--filter", metavar="GLOB", help="List the tensors of these names, such as '*.bias'.")
    ] = None,
    limit: Limit = 40,
    json: Json = False,
    values: Annotated[bool, typer.Option("--values/--no-values", help="Read the numbers, to find NaN and inf.")] = True,
) -> None:
    """Say what is in it: tensors, step, optimizer, prefixes, NaN. Nothing in it is run."""
    from lockstep import ckpt

    raise typer.Exit(int(ckpt.show(path, pattern, limit, json, values)))


@ckpt_app.command(cls=Verb)
def verify(path: Source, json: Json = False) -> None:
    """Say whether it is whole; of a run, every checkpoint, and which one a resume takes."""
    from lockstep import ckpt

    raise typer.Exit(int(ckpt.verify(path, json)))


@ckpt_app.command(cls=Verb)
def convert(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="A checkpoint of any kind.")],
    target: Annotated[Path, typer.Argument(metavar="DST", help="A file for the weights alone.")],
    to: Annotated[
        str | None, typer.Option(metavar="safetensors|pt", help="Where the name of DST does not say it.")
    ] = None,
    strip: Annotated[
        list[str] | None, typer.Option(metavar="PREFIX", help="Take it away from names; may be repeated.")
    ] = None,
    add: Annotated[str, typer.Option(metavar="PREFIX", help="Put it before every name.")] = "",
    only: Annotated[
        str | None, typer.Option(metavar="GLOB", help="Take the tensors of these names alone, old or new.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(metavar="fp32|bf16|fp16|fp64", help="Another type for floating tensors.")
    ] = None,
    key: Key = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    """Write its weights as one file, without `module.`, `_orig_mod.` and their like."""
    from lockstep import ckpt

    raise typer.Exit(int(ckpt.convert(source, target, to, strip or (), add, only, dtype, key, force)))


@ckpt_app.command(cls=Verb)
def diff(
    left: Annotated[Path, typer.Argument(metavar="A", help="A checkpoint of any kind.")],
    right: Annotated[Path, typer.Argument(metavar="B", help="Another.")],
    tolerance: Annotated[float, typer.Option(min=0, metavar="X", help="Let absolute differences up to X pass.")] = 0.0,
    key: Key = None,
    limit: Limit = 40,
    json: Json = False,
) -> None:
    """Say which weights of two differ, and by how much."""
    from lockstep import ckpt

    raise typer.Exit(int(ckpt.diff(left, right, tolerance, key, limit, json)))
