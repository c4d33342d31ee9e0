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
        choice: `auto` for the members of each outermost `nn.ModuleList` that have parameters (of a list of lists, the
            first ones with a forward), or patterns of names or class names, such as `layers.*` or `TransformerBlock`;
            an empty list for none.

    Raises:
        UserError: where a pattern names no module, or one that is never called.
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
            if not _has_forward(module):
                seen, must = f"parallel.blocks: {name} is a {type(module).__name__}", "a block has a forward of its own"
                raise UserError(explain(seen, must, next_step=f"name its members: {name}.*"))
    if choice != "auto" and (absent := [p for p in patterns if p not in matched]):
        raise UserError(_no_module(model, absent))
    return found


def _members(model: nn.Module) -> list[str]:
    """The names of the members of each outermost list of modules; of a member that is only a container, its members."""
    lists = [name for name, module in model.named_modules() if isinstance(module, nn.ModuleList)]
    outermost = [name for name in lists if not any(name.startswith(f"{other}.") for other in lists)]
    return [member for name in outermost for member in _called(model.get_submodule(name), name)]


def _called(container: nn.Module, path: str) -> list[str]:
    """The first modules below a container that have a forward."""
    found = []
    for key, child in container.named_children():
        name = f"{path}.{key}" if path else key
        found += [name] if _has_forward(child) else _called(child, name)
    return found


def _has_forward(module: nn.Module) -> bool:
    return type(module).forward is not nn.Module.forward


def _no_module(model: nn.Module, absent: Sequence[str]) -> str:
    classes = sorted({type(module).__name__ for name, module in model.named_modules() if name})
    children = ", ".join(name for name, _ in model.named_children())
    seen = f"parallel.blocks: no module of {type(model).__name__} fits {', '.join(absent)}"
    must = f"names such as those of its children ({children}), or classes in it ({', '.join(classes[:12])})"
    return explain(seen, must, next_step="mend the pattern; * stands for any text")
