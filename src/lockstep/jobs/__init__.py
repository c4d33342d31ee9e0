"""A training as a job of a scheduler: its script or manifest, the tools that take it, and what became of it."""
