"""`lockstep submit`: the same training as a job of Slurm or of Kubeflow Trainer."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.core.errors import LockstepError, UserError, explain
from lockstep.core.outcome import Exit
from lockstep.jobs import record as notes
from lockstep.jobs import states, tools
from lockstep.jobs.record import JobRecord
from lockstep.jobs.slurm import SlurmWants, batch_script, output_file
from lockstep.jobs.trainjob import PodWants, config_path, documents
from lockstep.jobs.wants import Program, Wants, name_from

if TYPE_CHECKING:
    from lockstep.runtime.config import Config

CPUS_PER_GPU = 4


def slurm(
    program: str, arguments: Sequence[str], wants: Wants, options: SlurmWants, output: str | None, dry_run: bool
) -> Exit:
    """Print the batch script, or hand it to `sbatch` and say where the job is found again.

    Args:
        program: a config, the first `key=value` without one, or a script.
        arguments: further `key=value`, or what the script gets.
        wants: what the job asks for.
        options: what only Slurm knows.
        output: the run's folder; None for the config's `run.dir`, else one under `runs/`, named after job and time.
        dry_run: print the script and do nothing else.
    """
    run_dir = output or _stated_folder(program, arguments) or _new_folder("runs", wants.name)
    if wants.cpus is None:  # a task gets one core where nobody asks for more, and here the task is a whole node
        wants = replace(wants, cpus=wants.ranks_per_node * (CPUS_PER_GPU if wants.gpus else 1))
    job = _script(program, arguments, run_dir) if program.endswith(".py") else _training(program, arguments, run_dir)
    text = batch_script(job, wants, options, str(Path.cwd()))
    if dry_run:
        print(text, end="")
        print(f"To submit it by hand: mkdir -p {run_dir}, then sbatch with this script.", file=sys.stderr)
        return Exit.DONE
    try:
        Path(run_dir).mkdir(parents=True, exist_ok=True)  # sbatch takes a job whose output has no folder, and it fails
    except OSError as error:
        seen = f"{run_dir} cannot be made: {error.strerror}"
        raise UserError(explain(seen, "a folder with write access", "--output")) from None
    try:
        job_id = tools.call(["sbatch", "--parsable"], feed=text).strip().partition(";")[0]
    except LockstepError:
        with suppress(OSError):
            Path(run_dir).rmdir()  # only where nothing else lies in it
        raise
    log = output_file(job, wants.name).replace("%j", job_id)
    _submitted(JobRecord(job_id, "slurm", wants.name, run_dir, log, _now()))
    return Exit.DONE


def kubernetes(
    program: str, arguments: Sequence[str], wants: Wants, pods: PodWants, output: str | None, dry_run: bool
) -> Exit:
    """Print the manifest, or hand it to `kubectl apply` and say where the job is found again.

    Args:
        program: a config here, the first `key=value` without one, or a script inside the image or on the volume.
        arguments: further `key=value`, or what the script gets.
        wants: what the job asks for.
        pods: what only Kubernetes knows.
        output: the run's folder inside the pods; None for the config's `run.dir`, else one on the volume, named after
            the job.
        dry_run: print the manifest and do nothing else.
    """
    run_dir = output or _stated_folder(program, arguments) or f"{pods.mount}/runs/{wants.name}"
    if program.endswith(".py"):
        job = Program("run", (program, *arguments), run_dir)
    else:
        job = _training(program, arguments, run_dir, config_path())
    text = documents(job, wants, pods)
    if dry_run:
        print(text, end="")
        return Exit.DONE
    tools.call(["kubectl", "apply", "-f", "-"], feed=text)
    _submitted(JobRecord(wants.name, "kubernetes", wants.name, run_dir, "", _now(), pods.namespace))
    return Exit.DONE


def status(job_id: str) -> Exit:
    """Print the state of one job, or of all that were submitted from this folder."""
    records = [notes.find(job_id)] if job_id else notes.read_all()
    if not records:
        notes.find()  # says that there is none
    for one in records:
        print(f"{one.id}  {one.name}  {states.state(one)}")
        print(f"    submitted {one.submitted}, run {one.run_dir}" + (f", output {one.output}" if one.output else ""))
    return Exit.DONE


def logs(job_id: str, lines: int) -> Exit:
    """Print the last lines of a job's output; without an id of the job that was submitted last."""
    print(states.logs(notes.find(job_id), lines), end="")
    return Exit.DONE


def name_of(program: str, unique: bool = False) -> str:
    """A job's name made of what it runs; with the time in it, where the name is all that a cluster knows it by."""
    name = name_from(Path(program.rpartition("=")[2].partition(":")[0]).stem)
    return f"{name[:28].rstrip('-')}-{datetime.now():%m%d-%H%M%S}" if unique else name


def ranks_of(gpus: int, nproc: int | None) -> int:
    """How many processes each node starts.

    Raises:
        UserError: neither is given.
    """
    if nproc is None and not gpus:
        seen = "neither --gpus-per-node nor --nproc"
        raise UserError(explain(seen, "the job says how many ranks each node starts", next_step="--gpus-per-node 4"))
    return nproc or gpus


def _training(program: str, arguments: Sequence[str], run_dir: str, file: str = "") -> Program:
    """`lockstep train` with a config that is resolved now: a mistake is found here, not after hours in the queue."""
    from lockstep.recipes.names import check_recipe_name
    from lockstep.runtime.config import dump_config

    config = _config(program, [*arguments, f"run.dir={run_dir}"])
    if not file:
        check_recipe_name(config.recipe)  # in a pod its file lies elsewhere
    return Program("train", (file or f"{run_dir}/job.yaml", "--resume-or-start"), run_dir, dump_config(config))


def _stated_folder(program: str, arguments: Sequence[str]) -> str | None:
    return None if program.endswith(".py") else _config(program, arguments).run.dir


def _config(program: str, arguments: Sequence[str]) -> "Config":
    from lockstep.runtime.config import load_config

    words = [program, *arguments]
    paths = [word for word in words if "=" not in word]
    if len(paths) > 1:
        raise UserError(explain(f"{len(paths)} configs: {', '.join(paths)}", "at most one; overrides are key=value"))
    return load_config(Path(paths[0]) if paths else None, [word for word in words if "=" in word])


def _script(program: str, arguments: Sequence[str], run_dir: str) -> Program:
    if not Path(program).is_file():
        raise UserError(explain(f"{program} is not there", "a Python file", next_step="check the path"))
    return Program("run", (program, *arguments), run_dir)


def _submitted(job: JobRecord) -> None:
    notes.keep(job)
    print(f"{job.kind} job {job.id} submitted: {job.name}, run {job.run_dir}")
    print(f"  lockstep submit status {job.id}\n  lockstep submit logs {job.id}")


def _new_folder(parent: str, name: str) -> str:
    wanted = f"{parent}/{name}-{datetime.now():%Y%m%d-%H%M%S}"
    taken = (f"{wanted}-{number}" if number > 1 else wanted for number in range(1, 1000))
    return next(folder for folder in taken if not Path(folder).exists())


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
