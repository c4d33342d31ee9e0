"""argv -> one verb -> exit code. No logic here, and no torch for --help."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from lockstep import __version__
from lockstep.cli_submit import submit_app
from lockstep.core.errors import LockstepError, UserError, explain
from lockstep.core.outcome import Exit
from lockstep.core.wish import Wish

app = typer.Typer(
    help="Take a PyTorch training from one process to many.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(submit_app, name="submit")


def _version(asked: bool) -> None:
    if asked:
        print(f"lockstep {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it and exit.")
    ] = False,
) -> None:
    """Take a PyTorch training from one process to many."""


Nproc = Annotated[
    str, typer.Option(metavar="auto|N", help="Ranks on this machine; auto: all GPUs, or min(2, cores) on a CPU.")
]
NumNodes = Annotated[int | None, typer.Option("--nnodes", min=1, metavar="N", help="Machines that take part.")]
NodeRank = Annotated[int | None, typer.Option(min=0, metavar="R", help="Which of them this one is, from 0.")]
Master = Annotated[
    str | None, typer.Option(metavar="HOST[:PORT]", help="Where node 0 is reached; the same on every machine.")
]
NodeWait = Annotated[
    float | None, typer.Option(min=1, metavar="SECONDS", help="How long to wait for the other machines (300).")
]
Restarts = Annotated[int, typer.Option(min=0, metavar="K", help="Start again after a failure, K times at most.")]
StallTimeout = Annotated[
    float | None, typer.Option(min=0, metavar="SECONDS", help="End a run that does not advance (1800); 0: never.")
]
AllRanks = Annotated[bool, typer.Option("--all-ranks", help="Show what every rank says, not only rank 0.")]


@app.command()
def train(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CONFIG] [KEY=VALUE]...", help="A YAML file, and values that override it."),
    ] = None,
    nproc: Nproc = "auto",
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
    all_ranks: AllRanks = False,
    nnodes: NumNodes = None,
    node_rank: NodeRank = None,
    master: Master = None,
    node_wait: NodeWait = None,
    restarts: Restarts = 0,
    stall_timeout: StallTimeout = None,
) -> None:
    """Train a recipe on 1 to N ranks of one machine or many: one config, no change in the code."""
    from lockstep.train import train as verb

    paths = [item for item in arguments or [] if "=" not in item]
    overrides = [item for item in arguments or [] if "=" in item]
    if len(paths) > 1:
        raise UserError(explain(f"{len(paths)} configs: {', '.join(paths)}", "at most one; overrides are key=value"))
    overrides += ["log.all_ranks=true"] * all_ranks
    path = Path(paths[0]) if paths else None
    wish = Wish(parse_nproc(nproc), nnodes, node_rank, master, node_wait, restarts, stall_timeout)
    raise typer.Exit(int(verb(path, overrides, wish, max_steps, resume, show_config, resume_or_start)))


@app.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
def run(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="A Python file.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGS]...", help="What the script gets.")] = None,
    nproc: Nproc = "auto",
    nnodes: NumNodes = None,
    node_rank: NodeRank = None,
    master: Master = None,
    node_wait: NodeWait = None,
    restarts: Restarts = 0,
    stall_timeout: StallTimeout = None,
    log_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where each rank's log file is (runs/SCRIPT-TIME/logs).")
    ] = None,
    all_ranks: AllRanks = False,
    record: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep what every rank of one machine did in this folder.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, metavar="K", help="With --record: stop after K optimizer steps.")
    ] = None,
    nodes: Annotated[
        bool, typer.Option("--nodes", help="With --record: tell every rank that it is alone on its node.")
    ] = False,
) -> None:
    """Run a script on N ranks, unchanged, and watch over it; with --record, keep what every rank did."""
    from lockstep.run import record_run
    from lockstep.run import run as verb

    argv = tuple(arguments or ())
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


@app.command()
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
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report as one page.")] = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write it as JSON.")] = None,
    sarif: Annotated[Path | None, typer.Option(metavar="FILE", help="Write it as SARIF, for code review.")] = None,
) -> None:
    """Prove that a script on N ranks is the training that one process does."""
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


@app.command()
def doctor(
    nproc: Annotated[
        str, typer.Option(metavar="auto|N", help="Ranks on this machine; auto: all GPUs, or min(2, cores) on a CPU.")
    ] = "auto",
    nnodes: Annotated[int | None, typer.Option(min=1, metavar="N", help="Machines; start it on each.")] = None,
    node_rank: Annotated[int | None, typer.Option(min=0, metavar="R", help="Which of them this one is.")] = None,
    master: Annotated[str | None, typer.Option(metavar="HOST[:PORT]", help="Where node 0 is reached.")] = None,
    json: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write everything as JSON; `-` prints it instead of the text.")
    ] = None,
    clean: Annotated[
        bool, typer.Option("--clean", help="Show what earlier runs have left, then end it and remove it.")
    ] = False,
) -> None:
    """What this machine, or these machines, can do, and what to mend before a run."""
    from lockstep.core.wish import Wish
    from lockstep.doctor import command

    wish = Wish(nproc=parse_nproc(nproc), num_nodes=nnodes, node_rank=node_rank, master=master)
    raise typer.Exit(int(command(wish, json, clean)))


def parse_nproc(text: str) -> int | None:
    """A number of ranks; None for `auto`."""
    if text == "auto":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise UserError(explain(f"--nproc {text}", "auto, or a whole number from 1"))
    return int(text)


def with_optional_values(argv: list[str]) -> list[str]:
    """Give `train --resume` an empty value where none follows, which click cannot express beside free arguments."""
    if argv[:1] != ["train"]:  # elsewhere such a word is the user's script's
        return argv
    result = []
    for position, item in enumerate(argv):
        following = argv[position + 1] if position + 1 < len(argv) else "-"
        bare = item == "--resume" and (following.startswith("-") or "=" in following)
        result.append("--resume=" if bare else item)
    return result


def main() -> None:
    """The command `lockstep`."""
    try:
        app(with_optional_values(sys.argv[1:]), prog_name="lockstep")
    except LockstepError as error:
        print(error, file=sys.stderr)
        sys.exit(int(error.exit_code))
    except KeyboardInterrupt:
        sys.exit(int(Exit.INTERRUPTED))
