"""Who does not advance, who waits for whom, and what is certain enough to end a run."""

from lockstep.launch.watchdog.limits import Limits
from lockstep.launch.watchdog.watchdog import Seen, Watchdog

__all__ = ["Limits", "Seen", "Watchdog"]
