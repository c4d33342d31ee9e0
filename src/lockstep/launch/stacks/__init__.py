"""What a process does at this moment, read from outside: it need not answer, run, or hold the GIL."""

from lockstep.launch.stacks.handler import arm
from lockstep.launch.stacks.read import read_stacks
from lockstep.launch.stacks.stack import Frame, Stack, Thread, users_frames
from lockstep.launch.stacks.words import doing, spot
from lockstep.launch.stacks.workers import at_work, worker_stacks

__all__ = [
    "Frame",
    "Stack",
    "Thread",
    "arm",
    "at_work",
    "doing",
    "read_stacks",
    "spot",
    "users_frames",
    "worker_stacks",
]
