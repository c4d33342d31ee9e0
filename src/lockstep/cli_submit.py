"""The words of `lockstep submit`: argv -> one function of `lockstep.submit`."""

from typing import Annotated

import typer

from lockstep.cli_help import Verb
from lockstep.core.errors import UserError, explain

submit_app = typer.Typer(
    help="Send a training to Slurm or Kubernetes, and find it again.", no_args_is_help=True, rich_markup_mode=None
)

SUBMIT_EXAMPLES = """
Examples:
lockstep submit slurm config.yaml --nodes 2 --gpus-per-node 4 --time 01:00:00
lockstep submit status
"""

ProgramArgument = Annotated[
    str, typer.Argument(metavar="CONFIG|KEY=VALUE|SCRIPT", help="As for `train` and `run`: a YAML file, or a script.")
]
Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]... | [-- ARGS]...", help="What overrides the config, or what the script gets."),
]
Nodes = Annotated[int, typer.Option(min=1, metavar="N", help="Machines.")]
Gpus = Annotated[int, typer.Option(min=0, metavar="N", help="GPUs on each machine; one rank a GPU.")]
Nproc = Annotated[int | None, typer.Option(min=1, metavar="N", help="Ranks on each machine, where not one a GPU.")]
Cpus = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="CPU cores on each machine; Slurm: else 4 a GPU, or 1 a rank.")
]
Memory = Annotated[str, typer.Option(metavar="SIZE", help="Memory on each machine, such as 64G (Kubernetes: 64Gi).")]
Restarts = Annotated[
    int, typer.Option(min=0, metavar="K", help="Start the ranks again after a failure, K times at most.")
]
Name = Annotated[str | None, typer.Option(metavar="NAME", help="The job's name; else that of PROGRAM.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be submitted, and exit.")]
JobId = Annotated[str, typer.Argument(metavar="[ID]", help="A job's id; else the one that was submitted last.")]


@submit_app.command(cls=Verb)
def slurm(
    program: ProgramArgument,
    arguments: Words = None,
    nodes: Nodes = 1,
    gpus_per_node: Gpus = 0,
    nproc: Nproc = None,
    cpus_per_node: Cpus = None,
    mem: Memory = "",
    restarts: Restarts = 0,
    time: Annotated[
        str, typer.Option(metavar="TIME", help="The limit of one start: minutes, H:MM:SS, D-HH:MM:SS.")
    ] = "",
    partition: Annotated[str, typer.Option(metavar="NAME", help="Where to queue.")] = "",
    account: Annotated[str, typer.Option(metavar="NAME", help="Who pays.")] = "",
    name: Name = None,
    output: Annotated[str | None, typer.Option(metavar="DIR", help="The run's folder, on a disk of all nodes.")] = None,
    signal_s: Annotated[
        int, typer.Option(min=10, max=65535, metavar="SECONDS", help="How long before its end the job is told to save.")
    ] = 120,
    max_requeues: Annotated[
        int, typer.Option(min=0, metavar="N", help="How often the job goes back to the queue after saving.")
    ] = 100,
    setup: Annotated[
        list[str] | None, typer.Option(metavar="LINE", help="A line of shell before the start; may be repeated.")
    ] = None,
    sbatch: Annotated[
        list[str] | None, typer.Option(metavar="OPTION", help="One more option of sbatch, as --sbatch=--qos=high.")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Write a batch script with one launcher on each node, and hand it to sbatch."""
    from lockstep import submit
    from lockstep.jobs.slurm import SlurmWants
    from lockstep.jobs.wants import Wants, check_name, check_signal, check_time

    submit.ranks_of(gpus_per_node, nproc)
    job_name = check_name(name) if name else submit.name_of(program)
    wants = Wants(job_name, nodes, gpus_per_node, nproc, cpus_per_node, restarts)
    if time:
        check_time(time)
        check_signal(signal_s, time)
    options = SlurmWants(time, partition, account, mem, signal_s, tuple(setup or ()), tuple(sbatch or ()), max_requeues)
    raise typer.Exit(int(submit.slurm(program, arguments or [], wants, options, output, dry_run)))


@submit_app.command(cls=Verb)
def kubernetes(
    program: ProgramArgument,
    image: Annotated[str, typer.Option(metavar="IMAGE", help="With Python, Lockstep and what the program needs.")],
    pvc: Annotated[str, typer.Option(metavar="NAME", help="A volume claim that all pods may write; runs lie there.")],
    arguments: Words = None,
    nodes: Nodes = 1,
    gpus_per_node: Gpus = 0,
    nproc: Nproc = None,
    cpus_per_node: Cpus = None,
    mem: Memory = "",
    restarts: Restarts = 0,
    name: Name = None,
    output: Annotated[str | None, typer.Option(metavar="DIR", help="The run's folder inside the pods.")] = None,
    mount: Annotated[str, typer.Option(metavar="DIR", help="Where the volume is mounted.")] = "/data",
    namespace: Annotated[str, typer.Option(metavar="NAME", help="Else the one that kubectl is set to.")] = "",
    runtime: Annotated[str, typer.Option(metavar="NAME", help="The training runtime.")] = "torch-distributed",
    signal_s: Annotated[
        int, typer.Option(min=10, metavar="SECONDS", help="How long a pod that is told to end may take to save.")
    ] = 120,
    env: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A variable; may be repeated.")] = None,
    dry_run: DryRun = False,
) -> None:
    """Write a TrainJob of Kubeflow Trainer, one pod a node, and hand it to kubectl."""
    from lockstep import submit
    from lockstep.jobs.trainjob import PodWants, check_mount
    from lockstep.jobs.wants import Wants, check_name

    submit.ranks_of(gpus_per_node, nproc)
    wants = Wants(
        check_name(name) if name else submit.name_of(program, unique=True), nodes, gpus_per_node, nproc, cpus_per_node
    )
    variables = tuple(_variable(text) for text in env or ())
    pods = PodWants(image, pvc, check_mount(mount), namespace, runtime, mem, signal_s, variables)
    raise typer.Exit(int(submit.kubernetes(program, arguments or [], wants, pods, output, dry_run)))


@submit_app.command(cls=Verb)
def status(
    job_id: Annotated[str, typer.Argument(metavar="[ID]", help="A job's id; else all of this folder.")] = "",
) -> None:
    """Say what became of a job."""
    from lockstep import submit

    raise typer.Exit(int(submit.status(job_id)))


@submit_app.command(cls=Verb)
def logs(
    job_id: JobId = "", lines: Annotated[int, typer.Option(min=1, metavar="N", help="So many of the last.")] = 50
) -> None:
    """Show what a job printed."""
    from lockstep import submit

    raise typer.Exit(int(submit.logs(job_id, lines)))


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UserError(explain(f"--env {text}", "NAME=VALUE"))
    return name, value
