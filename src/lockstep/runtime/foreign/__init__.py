"""Checkpoints of any origin, read without running what is in them: ours, plain files, Accelerate, Lightning, DCP."""
