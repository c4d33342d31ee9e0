"""What is remembered of the trackers between two starts of a run: the id each has given, and how far it has come."""

import json
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from lockstep.core.files import write_text

FILE = "trackers.json"


class Memory:
    """The file trackers.json in a run's folder. Several threads may write to it.

    Args:
        folder: of the run.
        go_on: whether the run goes on with what an earlier start has written; if not, that is forgotten.
    """

    def __init__(self, folder: Path, go_on: bool) -> None:
        self._path = folder / FILE
        self._lock = Lock()
        self._now = _read(self._path) if go_on else {}

    def run_id(self, tracker: str) -> str | None:
        """The id that a tracker has given, None where it has given none."""
        kept = self._now.get(tracker, {}).get("id")
        return kept if isinstance(kept, str) else None

    def sent(self, tracker: str) -> dict[str, int]:
        """The last step that a tracker has, by the name of the curve."""
        sent = self._now.get(tracker, {}).get("sent", {})
        return {name: step for name, step in sent.items() if isinstance(step, int)} if isinstance(sent, dict) else {}

    def keep_id(self, tracker: str, run_id: str | None) -> None:
        """Remember an id; another one than before starts from nothing.

        Raises:
            OSError: where it cannot be written.
        """
        if run_id is not None:
            sent = self.sent(tracker) if run_id == self.run_id(tracker) else {}
            self._write(tracker, {"id": run_id, "sent": sent})

    def keep_sent(self, tracker: str, step: int, values: Mapping[str, float]) -> None:
        """Remember that a tracker has taken a record.

        Raises:
            OSError: where it cannot be written.
        """
        run_id = self.run_id(tracker)
        if run_id is not None:
            self._write(tracker, {"id": run_id, "sent": {**self.sent(tracker), **dict.fromkeys(values, step)}})

    def _write(self, tracker: str, entry: dict[str, Any]) -> None:
        with self._lock:
            self._now = {**self._now, tracker: entry}
            write_text(self._path, json.dumps(self._now, indent=2))


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    entries = found.items() if isinstance(found, dict) else ()
    return {name: entry for name, entry in entries if isinstance(entry, dict)}
