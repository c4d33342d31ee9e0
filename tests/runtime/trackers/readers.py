"""What W&B and MLflow have of a run, read back."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_BLOCK, _HEADER = 32768, 7


def wandb_records(folder: Path) -> Iterator[Any]:
    """The records of an offline run's .wandb file: a log of blocks, as LevelDB has it."""
    from wandb.proto import wandb_internal_pb2 as messages

    (path,) = folder.glob("run-*.wandb")
    data, at, whole = path.read_bytes(), _HEADER, b""
    while at + _HEADER <= len(data):
        if _BLOCK - at % _BLOCK < _HEADER:
            at += _BLOCK - at % _BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + _HEADER])
        whole += data[at + _HEADER : at + _HEADER + length]
        at += _HEADER + length
        if kind in (1, 4):  # all of a record, or its last part
            record = messages.Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


def wandb_run(folder: Path) -> dict[str, Any]:
    """Id, project, name, config, history (step -> values), summary and exit code of an offline run."""
    found: dict[str, Any] = {"config": {}, "history": {}, "summary": {}, "exit": None}
    for record in wandb_records(folder):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            found |= {"id": record.run.run_id, "project": record.run.project, "name": record.run.display_name}
        elif kind == "config":
            found["config"] |= {one.key: json.loads(one.value_json) for one in record.config.update}
        elif kind == "history":
            values = {one.key or one.nested_key[0]: json.loads(one.value_json) for one in record.history.item}
            found["history"][record.history.step.num] = values
        elif kind == "summary":
            found["summary"] |= {one.key: json.loads(one.value_json) for one in record.summary.update}
        elif kind == "exit":
            found["exit"] = record.exit.exit_code
    return found


def mlflow_runs(database: Path) -> list[dict[str, Any]]:
    """All runs of a database, each metric with its whole history: (step, value)."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{database}")
    found = []
    for experiment in client.search_experiments():
        for run in client.search_runs([experiment.experiment_id]):
            metrics = {
                name: [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, name)]
                for name in run.data.metrics
            }
            about = {"id": run.info.run_id, "name": run.info.run_name, "status": run.info.status}
            found.append(
                {
                    "project": experiment.name,
                    **about,
                    "params": run.data.params,
                    "tags": run.data.tags,
                    "metrics": metrics,
                }
            )
    return found
