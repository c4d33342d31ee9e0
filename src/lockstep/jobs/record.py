"""A note of every job that was submitted, so that its state and its output are found again."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from lockstep.core.errors import UserError, explain
from lockstep.core.files import write_text

FOLDER = Path(".lockstep") / "jobs"


@dataclass(frozen=True)
class JobRecord:
    """A submitted job.

    id: Slurm's number, or the name of a TrainJob. kind: `slurm` or `kubernetes`. name: of the job. run_dir: its folder,
    as the job sees it. output: the file that it prints to; "" where the cluster keeps it. submitted: date and time, ISO
    8601. namespace: of Kubernetes, "" for kubectl's own.
    """

    id: str
    kind: str
    name: str
    run_dir: str
    output: str
    submitted: str
    namespace: str = ""


def keep(record: JobRecord) -> None:
    """Write the note under the current folder; a later job of the same id takes its place.

    Raises:
        UserError: the folder cannot be written.
    """
    try:
        FOLDER.mkdir(parents=True, exist_ok=True)
        write_text(FOLDER / f"{record.id}.json", json.dumps(asdict(record), indent=2) + "\n")
    except OSError as error:
        seen = f"job {record.id} was submitted, but {FOLDER} cannot be written: {error.strerror}"
        raise UserError(explain(seen, "a note by which `submit status` finds it")) from None


def find(job_id: str = "") -> JobRecord:
    """The job of this id, or the one that was submitted last.

    Raises:
        UserError: there is none.
    """
    records = read_all()
    chosen = [record for record in records if job_id in ("", record.id)]
    if chosen:
        return chosen[-1]
    known = ", ".join(record.id for record in records[-8:])
    seen = f"no job {job_id} was submitted from here" if job_id else "no job was submitted from here"
    next_step = f"known: {known}" if known else "ask in the folder in which `lockstep submit` was called"
    raise UserError(explain(seen, "a job with a note", f"{FOLDER}/", next_step))


def read_all() -> list[JobRecord]:
    """All notes under the current folder, oldest first; a file that is no note is passed over."""
    records = []
    for path in FOLDER.glob("*.json"):
        try:
            records.append(JobRecord(**json.loads(path.read_text(encoding="utf-8"))))
        except (OSError, ValueError, TypeError):
            continue
    return sorted(records, key=lambda record: record.submitted)
