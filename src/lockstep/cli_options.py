"""Options that several verbs have, and how their words are read."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from lockstep.cli_help import FAILURES, RANKS
from lockstep.core.errors import UserError, explain

ConfigWords = Annotated[
    list[str] | None,
    typer.Argument(metavar="[CONFIG] [KEY=VALUE]...", help="A YAML file, and values that override it."),
]
Nproc = Annotated[
    str,
    typer.Option(
        metavar="auto|N",
        show_default=False,
        rich_help_panel=RANKS,
        help="Ranks on this machine; auto: all GPUs, or min(2, cores) on a CPU.",
    ),
]
NumNodes = Annotated[
    int | None,
    typer.Option(
        "--nnodes", min=1, metavar="N", rich_help_panel=RANKS, help="Machines that take part; start it on each."
    ),
]
NodeRank = Annotated[
    int | None, typer.Option(min=0, metavar="R", rich_help_panel=RANKS, help="Which of them this one is, from 0.")
]
Master = Annotated[
    str | None,
    typer.Option(
        metavar="HOST[:PORT]", rich_help_panel=RANKS, help="Where node 0 is reached; the same on every machine."
    ),
]
NodeWait = Annotated[
    float | None,
    typer.Option(
        min=1, metavar="SECONDS", rich_help_panel=RANKS, help="How long to wait for the other machines (300)."
    ),
]
Restarts = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="K",
        rich_help_panel=FAILURES,
        help="Start again after a failure, K times at most.",
    ),
]
StallTimeout = Annotated[
    float | None,
    typer.Option(
        min=0, metavar="SECONDS", rich_help_panel=FAILURES, help="End a run that does not advance (1800); 0: never."
    ),
]
AllRanks = Annotated[bool, typer.Option("--all-ranks", help="Show what every rank says, not only rank 0.")]


def parse_nproc(text: str, option: str = "--nproc", least: int = 1) -> int | None:
    """A number of ranks or of other processes; None for `auto`."""
    if text == "auto":
        return None
    if not text.isdecimal() or int(text) < least:
        raise UserError(explain(f"{option} {text}", f"auto, or a whole number from {least}"))
    return int(text)


def parse_config_words(words: Sequence[str]) -> tuple[Path | None, list[str]]:
    """The config file, if any, and the overrides."""
    paths = [word for word in words if "=" not in word]
    if len(paths) > 1:
        raise UserError(explain(f"{len(paths)} configs: {', '.join(paths)}", "at most one; overrides are key=value"))
    return Path(paths[0]) if paths else None, [word for word in words if "=" in word]
