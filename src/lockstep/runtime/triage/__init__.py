"""Which module or line first made a value that is not finite: the step's micro-batches are run once more, watched."""
