"""How far every rank is, marked in shared memory as it runs: what a watchdog reads without asking the rank."""

from lockstep.trace.progress.board import WAITING, Board, Entry, Marks, Phase, Reading

__all__ = ["WAITING", "Board", "Entry", "Marks", "Phase", "Reading"]
