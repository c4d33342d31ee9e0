"""Take a PyTorch training from one process to many, and prove that it is still the same training."""

__version__ = "0.1.0"
