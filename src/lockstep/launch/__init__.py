"""Starting N ranks on this machine, and saying in one block what went wrong when one of them fails."""

from lockstep.launch.guard import run_as_rank
from lockstep.launch.local import launch_local

__all__ = ["launch_local", "run_as_rank"]
