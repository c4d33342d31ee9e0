"""The words of `train`, `scan` and `run`."""

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer

from lockstep.cli_options import (
    AllRanks,
    ConfigWords,
    Master,
    NodeRank,
    NodeWait,
    Nproc,
    NumNodes,
    Restarts,
    StallTimeout,
    parse_config_words,
    parse_nproc,
)
from lockstep.core.errors import UserError, explain
from lockstep.core.wish import Wish


def train(
    arguments: ConfigWords = None,
    max_steps: Annotated[
        int | None, typer.Option(min=1, metavar="K", help="Stop at step K this time; --resume goes on.")
    ] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="[FOLDER]", help="Go on with a run; without a folder, the newest under runs/.")
    ] = None,
    resume_or_start: Annotated[
        bool, typer.Option("--resume-or-start", help="Go on with the run in run.dir, or start it there.")
    ] = False,
    show_config: Annotated[bool, typer.Option("--show-config", help="Print the resolved config and exit.")] = False,
    anomaly: Annotated[
        bool,
        typer.Option("--anomaly", help="On one process, stop at the first nan or inf, and name the line that made it."),
    ] = False,
    all_ranks: AllRanks = False,
    nproc: Nproc = "auto",
    nnodes: NumNodes = None,
    node_rank: NodeRank = None,
    master: Master = None,
    node_wait: NodeWait = None,
    restarts: Restarts = 0,
    stall_timeout: StallTimeout = None,
) -> None:
    """Train a config on 1 to N ranks, on one machine or many.

    The same config gives the same training on every number of ranks, with no change in the code.
    """
    from lockstep.train import train as verb

    path, overrides = parse_config_words(arguments or [])
    overrides += ["log.all_ranks=true"] * all_ranks
    wish = Wish(parse_nproc(nproc), nnodes, node_rank, master, node_wait, restarts, stall_timeout)
    raise typer.Exit(int(verb(path, overrides, wish, max_steps, resume, show_config, resume_or_start, anomaly)))


TRAIN_EXAMPLES = """
lockstep train config.yaml
lockstep train config.yaml optim.lr=3e-4 --nproc 4
lockstep train --resume
"""


def scan(
    arguments: ConfigWords = None,
    split: Annotated[str, typer.Option(metavar="train|val|all", help="Which data is read.")] = "all",
    workers: Annotated[
        str, typer.Option(metavar="auto|N", show_default=False, help="Processes that read; auto: one a core.")
    ] = "auto",
    show: Annotated[int, typer.Option(min=0, metavar="K", help="Bad samples of each kind that are listed.")] = 10,
    timeout: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="The longest one sample may take; 0: no limit.")
    ] = 60.0,
    json: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write everything as JSON; `-` prints it instead of the text.")
    ] = None,
) -> None:
    """Read the whole data set, and name every bad sample.

    Index, file and what is wrong: a label outside the classes, another shape, empty, unreadable, not a number.
    """
    from lockstep.scan import scan as verb

    path, overrides = parse_config_words(arguments or [])
    if split not in ("train", "val", "all"):
        raise UserError(explain(f"--split {split}", "train, val or all"))
    reading = parse_nproc(workers, "--workers", least=1)
    raise typer.Exit(int(verb(path, overrides, split, reading, json, show, timeout)))


SCAN_EXAMPLES = """
lockstep scan config.yaml
lockstep scan config.yaml --split val --json bad.json
"""


def run(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="A Python file.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGS]...", help="What the script gets.")] = None,
    log_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where each rank's log file is (runs/SCRIPT-TIME/logs).")
    ] = None,
    all_ranks: AllRanks = False,
    nproc: Nproc = "auto",
    nnodes: NumNodes = None,
    node_rank: NodeRank = None,
    master: Master = None,
    node_wait: NodeWait = None,
    restarts: Restarts = 0,
    stall_timeout: StallTimeout = None,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", rich_help_panel="Recording", help="Keep what every rank of one machine did in this folder."
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="K", rich_help_panel="Recording", help="With --record: stop after K optimizer steps."
        ),
    ] = None,
    nodes: Annotated[
        bool,
        typer.Option(
            "--nodes",
            rich_help_panel="Recording",
            help="With --record: tell every rank that it is alone on its node.",
        ),
    ] = False,
) -> None:
    """Run a script on N ranks, unchanged, and watch over it.

    A rank that dies, stops or hangs is named, with its line and what the others wait for. What stands after SCRIPT is
    the script's.
    """
    from lockstep.run import record_run
    from lockstep.run import run as verb

    argv = tuple(arguments or ())
    if str(script).startswith("-"):  # click lets options pass that it does not know: they may be the script's
        raise _no_option(str(script))
    if record is None and (steps or nodes):
        raise UserError(explain("--steps or --nodes without --record", "a folder for the trace: --record DIR"))
    if record is not None:
        others = (nnodes, node_rank, master, node_wait, restarts or None, stall_timeout, log_dir, all_ranks or None)
        if any(other is not None for other in others):
            seen = "--record with options of a watched run (--nnodes, --restarts, --log-dir, ...)"
            raise UserError(explain(seen, "a recording is of one run on one machine: --nproc, --steps, --nodes"))
        raise typer.Exit(int(record_run(script, argv, parse_nproc(nproc), record, steps, nodes)))
    wish = Wish(parse_nproc(nproc), nnodes, node_rank, master, node_wait, restarts, stall_timeout, log_dir, all_ranks)
    raise typer.Exit(int(verb(script, argv, wish)))


def _no_option(word: str) -> UserError:
    known = [f"--{name.replace('_', '-')}" for name in run.__annotations__] + ["--help"]
    near = get_close_matches(word.partition("=")[0], known, n=1)
    step = f"did you mean {near[0]}?" if near else "lockstep run --help"
    return UserError(
        explain(f"lockstep run has no option {word}", "options, then SCRIPT, then its own words", "", step)
    )


RUN_EXAMPLES = """
lockstep run train_ddp.py --epochs 2
lockstep run --nproc 4 --restarts 2 train_ddp.py
lockstep run --nnodes 2 --node-rank 0 --master gpu-a train_ddp.py
"""
