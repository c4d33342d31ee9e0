"""N copies of one model that stay the same: the wrapper, its unused parameters, BatchNorm over all ranks."""
