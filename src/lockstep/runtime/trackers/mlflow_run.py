"""MLflow: a run on a tracking server, or in a database file."""

import importlib
import importlib.util
import json
import logging
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lockstep.core.errors import RunError, UserError, explain
from lockstep.runtime.trackers import About

log = logging.getLogger("lockstep")

INSTALL = "pip install 'torch-lockstep[mlflow]'"
_NOT_IN_A_NAME = re.compile(r"[^\w./\- ]")  # what MLflow refuses in names of metrics and parameters
_PARAMS_AT_ONCE, _LONGEST = 100, 500  # parameters of one request, and characters of one, by the strictest server
_PROBE_S = 10.0
_STATUS = {"failed": "FAILED", "preempted": "KILLED"}


class MlflowRun:
    """One MLflow run.

    Args:
        where: `on`: as MLFLOW_TRACKING_URI says, else MLflow's own default; a URI; or a folder, for `mlflow.db` in it.
        project: its experiment, made where it is missing; None: MLFLOW_EXPERIMENT_NAME or MLFLOW_EXPERIMENT_ID, else
            MLflow's own default.
    """

    name = "MLflow"

    def __init__(self, where: str, project: str | None) -> None:
        self._where, self._project = where, project
        self._mlflow: Any = None
        self._client: Any = None
        self._run_id = ""

    def about(self, about: About) -> str | None:
        """Start the run, or go on with it.

        Raises:
            UserError: the database needs a package that is missing, or MLflow has no store for such a URI.
            RunError: the server cannot be reached.
        """
        logging.getLogger("mlflow.store.db").setLevel(logging.CRITICAL)  # it tells each table, and pages of SQL
        self._mlflow = mlflow = importlib.import_module("mlflow")
        uri = mlflow.get_tracking_uri() if self._where == "on" else tracking_uri(self._where)
        _check_reachable(uri)
        unknown = importlib.import_module("mlflow.tracking.registry").UnsupportedModelRegistryStoreURIException
        try:
            self._client = client = mlflow.MlflowClient(tracking_uri=uri)
        except unknown:
            must = "http, https, sqlite, postgresql, mysql, mssql, file, databricks, or a folder"
            raise UserError(explain(f"MLflow has no store for {uri!r}", must, "log.mlflow")) from None
        if about.run_id is None:
            self._run_id = client.create_run(self._experiment(), run_name=about.name).info.run_id
        else:
            self._run_id = about.run_id
            client.update_run(self._run_id, status="RUNNING")
        self._describe(about)
        log.info("MLflow: run %s in %s", self._run_id, uri)
        return self._run_id

    def record(self, step: int, values: Mapping[str, float]) -> None:
        """Log one record, in one request."""
        metric, now = self._mlflow.entities.Metric, time.time_ns() // 1_000_000
        self._log([metric(named(name), float(value), now, step) for name, value in values.items()])

    def finish(self, ending: str, results: Mapping[str, float]) -> None:
        """End the run; its results are the last values of its metrics already."""
        self._client.set_tag(self._run_id, "ending", ending)
        self._client.set_terminated(self._run_id, _STATUS.get(ending, "FINISHED"))

    def _log(self, metrics: Any = (), params: Any = (), tags: Any = ()) -> None:
        self._client.log_batch(self._run_id, metrics=metrics, params=params, tags=tags)

    def _experiment(self) -> str:
        variables = importlib.import_module("mlflow.environment_variables")
        by_id = variables.MLFLOW_EXPERIMENT_ID.get()
        name = self._project or variables.MLFLOW_EXPERIMENT_NAME.get()
        if self._project is None and by_id:
            return str(by_id)
        if not name:
            return "0"
        found = self._client.get_experiment_by_name(name)
        return str(found.experiment_id if found is not None else self._client.create_experiment(name))

    def _describe(self, about: About) -> None:
        """The config as parameters, which never change; facts, and what a later start has changed, as tags."""
        entities = self._mlflow.entities
        config = {named(name): plain(value)[:_LONGEST] for name, value in about.config.items()}
        known = self._client.get_run(self._run_id).data.params if about.run_id is not None else {}
        new = [entities.Param(name, value) for name, value in config.items() if name not in known]
        changed = {f"changed.{name}": value for name, value in config.items() if known.get(name, value) != value}
        facts = {f"manifest.{name}": plain(value)[:_LONGEST] for name, value in about.facts.items()}
        tags = [entities.RunTag(name, value) for name, value in {**facts, **changed}.items()]
        for first in range(0, max(len(new), len(tags)), _PARAMS_AT_ONCE):
            part = slice(first, first + _PARAMS_AT_ONCE)
            self._log(params=new[part], tags=tags[part])


def tracking_uri(where: str) -> str:
    """The tracking URI of a value of log.mlflow: itself, or that of a database file in the folder that it names.

    Raises:
        UserError: the folder cannot be made.
    """
    if where in ("databricks", "uc") or re.match(r"[a-z][a-z0-9+-]*:", where):
        return where
    folder = Path(where).expanduser().resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        seen = f"the folder of log.mlflow cannot be made: {error.strerror}"
        raise UserError(explain(seen, "a folder with write access", str(folder), "name another")) from None
    return f"sqlite:///{folder / 'mlflow.db'}"


def named(name: str) -> str:
    """A name as MLflow takes it: other characters than letters, digits and `_ . - /` become `_`."""
    return _NOT_IN_A_NAME.sub("_", name)[:250]


def plain(value: object) -> str:
    """A value as text: that of YAML where it has one."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _check_reachable(uri: str) -> None:
    """The client itself would try for minutes."""
    if uri.startswith(("sqlite:", "postgresql", "mysql", "mssql")) and importlib.util.find_spec("sqlalchemy") is None:
        seen = f"MLflow needs sqlalchemy and alembic for {uri.partition(':')[0]}"
        raise UserError(explain(seen, "both are installed", "log.mlflow", INSTALL))
    if not uri.startswith(("http:", "https:")):
        return
    requests = importlib.import_module("requests")
    try:
        requests.get(uri, timeout=_PROBE_S)
    except requests.exceptions.SSLError:
        return  # it is there; whether its certificate will do, MLflow's own settings decide
    except (requests.exceptions.ConnectionError, requests.exceptions.Timeout) as error:
        what = "does not answer" if isinstance(error, requests.exceptions.Timeout) else "cannot be reached"
        seen, must = f"the MLflow server {uri} {what}", "it answers before the training begins"
        next_step = "look at the address and at the server; or log.mlflow=off, or a folder"
        raise RunError(explain(seen, must, "log.mlflow", next_step)) from None
