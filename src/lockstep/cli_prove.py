"""The words of `verify` and `doctor`."""

from pathlib import Path
from typing import Annotated

import typer

from lockstep.cli_help import REPORTS
from lockstep.cli_options import Master, NodeRank, Nproc, NumNodes, parse_nproc
from lockstep.core.wish import Wish


def verify(
    program: Annotated[
        str, typer.Argument(metavar="PROGRAM", help="A script, a recipe's YAML file, or with --compare a run.")
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGS]...", help="What the script gets; for a recipe key=value.")
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(metavar="SCRIPT", help="The single-process original. Without it: PROGRAM as one process."),
    ] = None,
    against_args: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Its arguments, where they are others.")
    ] = None,
    nproc: Annotated[int, typer.Option(min=2, metavar="N", help="Ranks of the distributed runs.")] = 2,
    steps: Annotated[int, typer.Option(min=1, metavar="K", help="Optimizer steps that are compared.")] = 8,
    accept: Annotated[
        list[str] | None, typer.Option(metavar="CODE", help="Declare a deviation; may be repeated.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Go on after the first broken rung.")] = False,
    resume_args: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Arguments that make the script go on from what it saved.")
    ] = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="The longest that one run may last.")] = 60.0,
    spawns: Annotated[bool, typer.Option("--spawns", help="The script starts its ranks itself (mp.spawn).")] = False,
    compare: Annotated[bool, typer.Option("--compare", help="Compare two finished runs: --compare RUN RUN.")] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", rich_help_panel=REPORTS, help="Write the report as one page.")
    ] = None,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", rich_help_panel=REPORTS, help="Write it as JSON.")
    ] = None,
    sarif: Annotated[
        Path | None,
        typer.Option(metavar="FILE", rich_help_panel=REPORTS, help="Write it as SARIF, for code review."),
    ] = None,
) -> None:
    """Prove that N ranks are the same training as one process.

    On two CPU processes, without a change in the script: samples, gradients, weights, resume, a killed rank.
    """
    from lockstep.verify import Reports, command, words

    options = {
        "against": against,
        "against_args": words(against_args),
        "num_ranks": nproc,
        "steps": steps,
        "accept": accept or [],
        "all_rungs": everything,
        "resume_args": words(resume_args),
        "timeout_s": timeout,
        "spawns": spawns,
    }
    raise typer.Exit(int(command(program, arguments or [], options, compare, Reports(html, json, sarif))))


VERIFY_EXAMPLES = """
lockstep verify config.yaml
lockstep verify train_ddp.py --against train.py -- --epochs 2
lockstep verify --compare runs/a runs/b
"""


def doctor(
    json: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write everything as JSON; `-` prints it instead of the text.")
    ] = None,
    clean: Annotated[
        bool, typer.Option("--clean", help="Show what earlier runs have left, then end it and remove it.")
    ] = False,
    nproc: Nproc = "auto",
    nnodes: NumNodes = None,
    node_rank: NodeRank = None,
    master: Master = None,
) -> None:
    """Say what this machine, or these machines, can do.

    And what to mend before a run: versions, GPUs, memory, interfaces, what earlier runs have left; a measured
    all-reduce.
    """
    from lockstep.doctor import command

    wish = Wish(nproc=parse_nproc(nproc), num_nodes=nnodes, node_rank=node_rank, master=master)
    raise typer.Exit(int(command(wish, json, clean)))


DOCTOR_EXAMPLES = """
lockstep doctor
lockstep doctor --nnodes 2 --node-rank 0 --master gpu-a
lockstep doctor --clean
"""
