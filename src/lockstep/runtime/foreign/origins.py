"""What names in a pickle mean for a user: whose objects they are, and whether the file is a trap."""

from collections.abc import Sequence

from lockstep.runtime.foreign.danger import is_dangerous, is_unknown

_KNOWN = (
    ("numpy.", "numbers of numpy"),
    ("argparse.Namespace", "options of a command line"),
    ("pathlib.", "paths"),
    ("pytorch_lightning.", "Lightning's own objects"),
    ("lightning", "Lightning's own objects"),
    ("omegaconf.", "a config of OmegaConf"),
    ("transformers.", "objects of transformers"),
    ("accelerate.", "objects of Accelerate"),
    ("torch.nn.", "modules of torch, pickled whole"),
    ("torch.optim.", "an optimizer or schedule, pickled whole"),
    ("torch.", "objects of torch that are no plain tensors"),
    ("__main__.", "classes of the script that saved it"),
    ("functools.", "functions with arguments"),
    ("datetime.", "times"),
    ("collections.", "containers"),
    ("copyreg.", "objects of classes"),
    ("enum.", "constants"),
)
_UNKNOWN = "called when it is read with pickle; what they do cannot be told here"


def told(origins: Sequence[str]) -> list[str]:
    """One line for each kind of foreign name: what would run first, then what is merely left out."""
    lines = [
        f"{name}: RUNS CODE when it is read with pickle or torch.load(weights_only=False)" for name in traps(origins)
    ]
    kinds: dict[str, list[str]] = {}
    for name in origins:
        if not is_dangerous(name):
            known = next((what for start, what in _KNOWN if name.startswith(start)), "other objects")
            kinds.setdefault(_UNKNOWN if is_unknown(name) else known, []).append(name)
    for what, names in kinds.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        lines.append(f"{', '.join(names[:3])}{more}: {what}")
    return lines


def traps(origins: Sequence[str]) -> list[str]:
    """The names that only a trap would hold."""
    return [name for name in origins if is_dangerous(name)]
