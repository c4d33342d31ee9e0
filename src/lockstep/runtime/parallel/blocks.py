"""Which modules of a model are its blocks: what is sharded, recomputed or compiled as one unit."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Literal

from torch import nn

from lockstep.core.errors import UserError, explain


def blocks_of(model: nn.Module, choice: Literal["auto"] | Sequence[str]) -> dict[str, nn.Module]:
    """The blocks by name, in the order of the model; none lies within another one.

    Args:
        model: the unwrapped model.
        choice: `auto` for the members of each outermost `nn.ModuleList` that have parameters, or patterns such as
            `layers.*` or `TransformerBlock`, of names or class names; an empty list for none.

    Raises:
        UserError: where a pattern names no module.
    """
    patterns = _members(model) if choice == "auto" else list(choice)
    found: dict[str, nn.Module] = {}
    matched: set[str] = set()
    for name, module in model.named_modules():
        fits = [p for p in patterns if name and (fnmatchcase(name, p) or fnmatchcase(type(module).__name__, p))]
        matched.update(fits)
        inside = any(name.startswith(f"{block}.") for block in found)
        if fits and not inside and module not in found.values() and any(True for _ in module.parameters()):
            found[name] = module
    if choice != "auto" and (absent := [p for p in patterns if p not in matched]):
        raise UserError(_no_module(model, absent))
    return found


def _members(model: nn.Module) -> list[str]:
    """The names of the members of each outermost list of modules."""
    lists = [name for name, module in model.named_modules() if isinstance(module, nn.ModuleList)]
    outermost = [name for name in lists if not any(name.startswith(f"{other}.") for other in lists)]
    return [f"{name}.{key}" for name in outermost for key, _ in model.get_submodule(name).named_children()]


def _no_module(model: nn.Module, absent: Sequence[str]) -> str:
    classes = sorted({type(module).__name__ for name, module in model.named_modules() if name})
    children = ", ".join(name for name, _ in model.named_children())
    seen = f"parallel.blocks: no module of {type(model).__name__} fits {', '.join(absent)}"
    must = f"names such as those of its children ({children}), or classes in it ({', '.join(classes[:12])})"
    return explain(seen, must, next_step="mend the pattern; * stands for any text")
