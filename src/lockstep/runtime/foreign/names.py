"""Names of weights: what wrappers have put into them, taken out; prefixes stripped and added; no two become one."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from lockstep.core.errors import UserError, explain
from lockstep.core.words import printable as printable

# What wrappers put before a name, and what they put anywhere into it.
BEFORE = ("module.",)
INSIDE = ("_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module.")
COMMON = ("model.", "net.", "network.", "backbone.", "encoder.", "state_dict.")

_WIDEST = 256  # bits of a number that is written out


def plain(name: str) -> str:
    """A parameter's own name, without what wrappers put before or into it."""
    for part in INSIDE:
        name = name.replace(part, "")
    for part in BEFORE:
        while name.startswith(part):
            name = name.removeprefix(part)
    return name


def text_of(value: Any) -> str:
    """A key or value from a file as short text; of what could grow without end, what it is.

    A list that holds itself many times has few bytes in a file and fills the memory as text.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, int) and value.bit_length() > _WIDEST:
        return f"<a number of {value.bit_length()} bits>"
    if value is None or isinstance(value, int | float | complex):
        return str(value)
    if isinstance(value, tuple) and len(value) <= 8 and all(isinstance(part, str | int | float) for part in value):
        return f"({', '.join(map(text_of, value))})"
    return f"<{getattr(value, 'origin', '') or type(value).__name__}>"


def prefixes_of(names: Iterable[str]) -> dict[str, int]:
    """What wrappers left in names, and first parts that all or most share: -> how many names have it."""
    names = list(names)
    found = {part: sum(name.startswith(part) for name in names) for part in BEFORE}
    found |= {part: sum(part in name for name in names) for part in INSIDE}
    cleaned = [plain(name) for name in names]
    found |= {part: sum(name.startswith(part) for name in cleaned) for part in COMMON}
    shared = common_prefix(cleaned)
    if shared:
        found[shared] = len(names)
    return {part: count for part, count in found.items() if count}


def common_prefix(names: Sequence[str]) -> str:
    """The first part that all names have (`net.`), "" where there is none or only one name."""
    first = {name.partition(".")[0] for name in names if "." in name}
    alone = len(names) > 1 and all("." in name for name in names)
    return f"{first.pop()}." if alone and len(first) == 1 else ""


def renamed(names: Iterable[str], strip: Sequence[str] = (), add: str = "", only: str | None = None) -> dict[str, str]:
    """Each name's new form, without what wrappers left.

    Args:
        names: as they are in the file.
        strip: prefixes to take away, each once, in this order.
        add: what is put before each.
        only: a glob; names that it fits neither before nor after are left out.

    Raises:
        UserError: where two would become one, or a prefix to strip is nowhere.
    """
    result: dict[str, str] = {}
    owner: dict[str, str] = {}
    used = set()
    for name in names:
        new = plain(name)
        forms = [name, new]
        for prefix in strip:
            if new.startswith(prefix):
                used.add(prefix)
                new = new.removeprefix(prefix)
        new = add + new
        if only is not None and not any(fnmatchcase(form, only) for form in (*forms, new)):
            continue
        result[name] = new
        if owner.setdefault(new, name) != name:
            seen = printable(f"{owner[new]} and {name} would both become {new}")
            raise UserError(explain(seen, "one name, one tensor", next_step="strip less, or take a part with --only"))
        if not new or new.endswith("."):
            raise UserError(explain(printable(f"nothing would be left of the name {name}"), next_step="strip less"))
    unused = [prefix for prefix in strip if prefix not in used]
    if unused:
        there = printable(", ".join(list(owner)[:3]))
        raise UserError(explain(f"no name begins with {unused[0]!r}", "a prefix of names", f"names such as {there}"))
    return result
