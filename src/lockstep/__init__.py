"""Take a PyTorch training from one process to many, and prove that it is still the same training."""

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """`lockstep.verify(...)`, imported when it is first asked for."""
    if name == "verify":
        import importlib

        return importlib.import_module("lockstep.verify")
    raise AttributeError(f"module 'lockstep' has no attribute {name!r}")
