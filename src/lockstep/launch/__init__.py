"""Starting N ranks on one machine or many, and saying in one block what went wrong when one of them fails."""

from lockstep.launch.asked import stop_asked
from lockstep.launch.guard import run_as_rank
from lockstep.launch.local import launch_local

__all__ = ["launch_local", "run_as_rank", "stop_asked"]
