"""Weights & Biases: a run on its server, or a folder of its own to be uploaded later."""

import importlib
import logging
from collections.abc import Mapping
from typing import Any

import psutil

from lockstep.core.errors import UserError, explain
from lockstep.runtime.trackers import About

log = logging.getLogger("lockstep")

_INIT_S = 45.0  # less than a start may take, so that the package's own words for its failure are heard


class WandbRun:
    """One W&B run.

    Args:
        offline: write to the run's folder only; else as WANDB_MODE says, which is to the server where it says nothing.
        project: its project; None: WANDB_PROJECT, else W&B's own default.
        named: whether the user has chosen the run's name; else WANDB_NAME comes first.
    """

    name = "W&B"

    def __init__(self, offline: bool, project: str | None, named: bool) -> None:
        self._offline, self._project, self._named = offline, project, named
        self._wandb: Any = None
        self._run: Any = None
        self._alone = True

    def about(self, about: About) -> str | None:
        """Start the run, or go on with it.

        Raises:
            UserError: it goes to the server and nobody is logged in.
        """
        self._wandb = wandb = importlib.import_module("wandb")
        self._alone = wandb.run is None
        asked = wandb.setup(wandb.Settings(silent=True)).settings  # the user's environment and files
        if not self._offline and asked.mode in ("online", "run", "shared"):
            _check_login(wandb)
        folder = about.folder if asked.root_dir == wandb.Settings().root_dir else asked.root_dir
        (about.folder / "wandb").mkdir(exist_ok=True)
        self._run = wandb.init(
            mode="offline" if self._offline else None,
            project=self._project,
            name=about.name if self._named else asked.run_name or about.name,
            id=about.run_id,
            resume=None if about.run_id is None else "allow",
            dir=folder,
            reinit=None if self._alone else "create_new",
            settings=wandb.Settings(silent=True, console="off", init_timeout=_INIT_S),
        )
        facts = {f"manifest.{name}": value for name, value in about.facts.items()}
        self._run.config.update({**about.config, **facts}, allow_val_change=True)
        where = self._run.url or f"{self._run.dir}".removesuffix("/files")
        log.info("W&B: %s", where if self._run.url else f"{where}; later: wandb sync {where}")
        return str(self._run.id)

    def record(self, step: int, values: Mapping[str, float]) -> None:
        """Log one record; W&B joins those of one step."""
        self._run.log(dict(values), step=step)

    def finish(self, ending: str, results: Mapping[str, float]) -> None:
        """Put the results into the summary and end the run."""
        try:
            self._run.summary.update({**results, "ending": ending})
            if ending == "preempted":
                self._run.mark_preempting()
            self._run.finish(exit_code=int(ending in ("failed", "preempted")))
        finally:
            if self._alone:
                self._wandb.teardown()  # its service process ends, and WANDB_SERVICE leaves the environment

    def abandon(self) -> None:
        """End its service, which tries for ever; what is on disk can be uploaded by `wandb sync`."""
        if not self._alone:
            return
        for child in psutil.Process().children(recursive=True):
            try:
                if child.name().startswith("wandb"):
                    child.kill()
                    child.wait(1)
            except psutil.Error:
                continue


def _check_login(wandb: Any) -> None:
    """The package would ask for a key at the terminal, or end the process."""
    if not wandb.login(prompt=False):
        seen, must = "W&B has no API key on this machine", "`wandb login`, or WANDB_API_KEY"
        raise UserError(explain(seen, must, "log.wandb=on", "log in, or log.wandb=offline"))
