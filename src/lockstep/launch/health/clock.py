"""The clock of this machine. How far it is from the other nodes' is measured by the ranks (`across.py`)."""

import time
from datetime import UTC, datetime
from pathlib import Path

from lockstep.launch.health.check import Asked, Check

_SLACK_S = 86_400.0


def checks(asked: Asked) -> list[Check]:
    """Whether the clock can be right: it must not be before the installation of this very file."""
    return [judge(time.time(), Path(__file__).stat().st_mtime)]


def judge(now_s: float, installed_s: float) -> Check:
    """Both in seconds since the epoch."""
    seen = f"{datetime.fromtimestamp(now_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
    if now_s < installed_s - _SLACK_S:
        seen += f", before Lockstep was installed ({datetime.fromtimestamp(installed_s, UTC):%Y-%m-%d})"
        return Check(
            "clock", "clock", "warn", seen, "set it (chrony or systemd-timesyncd): certificates and logs need it"
        )
    return Check("clock", "clock", "ok", seen)
