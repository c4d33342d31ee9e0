"""`lockstep ckpt`: what is in a checkpoint of any origin, whether it is whole, its weights as a file, two compared."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lockstep.core.errors import RunError, UserError, explain
from lockstep.core.outcome import Exit

if TYPE_CHECKING:
    from lockstep.runtime.foreign.compare import Compared
    from lockstep.runtime.foreign.contents import Contents
    from lockstep.runtime.foreign.writing import Form

T = TypeVar("T")
FORMS: "dict[str, Form]" = {".safetensors": "safetensors", ".pt": "pt", ".pth": "pt", ".bin": "pt", ".ckpt": "pt"}
_KINDS = "a run or checkpoint of Lockstep, .safetensors, .pt, or what Accelerate, Lightning, DCP, Hugging Face write"
DTYPES = ("fp64", "fp32", "bf16", "fp16")


def show(path: Path, pattern: str | None, limit: int, as_json: bool, values: bool) -> Exit:
    """Say what is in a checkpoint; nothing in it is run.

    Args:
        path: a file or folder.
        pattern: a glob on the names that are listed; None: those of the model.
        limit: so many a group, 0 for all.
        as_json: print JSON with everything.
        values: read the numbers too, to find NaN and inf.

    Returns: FAILED where its bytes are not as written, or reading it elsewhere would run code; else DONE.

    Raises:
        UserError: where it is no checkpoint. RunError: where it is damaged.
    """
    from lockstep.runtime.foreign.words import Shown, odd_in, show_lines
    from lockstep.runtime.foreign.words import as_json as json_of

    contents = _opened(path)
    odd = None
    if values:
        odd = _read(path, lambda: odd_in(contents))
    shown = Shown(pattern, limit)
    if as_json:
        print(json.dumps(_read(path, lambda: json_of(contents, shown, odd)), indent=2))
    else:
        _say(_read(path, lambda: list(show_lines(contents, shown, odd))))
    return Exit.FAILED if contents.dangerous or contents.damage else Exit.DONE


def verify(path: Path, as_json: bool) -> Exit:
    """Say whether a checkpoint, or every one of a run, is whole.

    Returns: DONE where all is whole, else FAILED.

    Raises:
        UserError: where there is no checkpoint.
    """
    from lockstep.runtime.foreign.names import printable
    from lockstep.runtime.foreign.wholeness import check
    from lockstep.runtime.foreign.window import NoCheckpointError

    found = []
    try:
        for checked in check(path):
            found.append(checked)
            if not as_json:
                _say([f"{checked.state:<9} {checked.path}: {checked.detail}"])
    except NoCheckpointError as error:
        raise UserError(explain(printable(str(error)), _KINDS, next_step=error.todo)) from None
    bad = [checked for checked in found if checked.state in ("damaged", "refused")]
    if as_json:
        rows = [{"path": str(one.path), "state": one.state, "detail": one.detail} for one in found]
        print(json.dumps({"whole": not bad, "found": rows}, indent=2))
    return Exit.FAILED if bad else Exit.DONE


def convert(
    source: Path,
    target: Path,
    form: str | None = None,
    strip: Sequence[str] = (),
    add: str = "",
    only: str | None = None,
    dtype: str | None = None,
    key: str | None = None,
    force: bool = False,
) -> Exit:
    """Write the weights of a checkpoint as one file, under clean names.

    Args:
        source: a checkpoint of any kind.
        target: the file.
        form: `safetensors` or `pt`; None: by the name of the file.
        strip: prefixes to take away. add: a prefix to put before each name.
        only: a glob on names, old or new; the others are left out.
        dtype: the type of floating tensors, None to keep it.
        key: which of several groups.
        force: write over a file that is there.

    Raises:
        UserError: where the options do not fit the checkpoint. RunError: where it is damaged or cannot be written.
    """
    from lockstep.core.words import amount
    from lockstep.runtime.foreign.names import printable, renamed
    from lockstep.runtime.foreign.take import weights_in
    from lockstep.runtime.foreign.writing import write_weights

    if target.is_dir():
        raise UserError(explain(f"{target} is there already, as a folder", "a new file", next_step="name a file in it"))
    chosen = _form_of(target, form)
    if dtype is not None and dtype not in DTYPES:
        raise UserError(explain(f"--dtype {dtype}", f"one of {', '.join(DTYPES)}"))
    _check_target(source, target, force)
    contents = _opened(source)
    entries = _read(source, lambda: weights_in(contents, key))
    names = renamed(entries, strip, add, only)
    if not names:
        raise UserError(
            explain(f"no name fits {only!r}", "a glob on names", f"such as {printable(next(iter(entries)))}")
        )
    kept = {new: entries[name] for name, new in names.items()}
    _read(source, lambda: write_weights(target, kept, chosen, dtype))
    changed = sum(name != new for name, new in names.items())
    size = amount(target.stat().st_size)
    renames = f", {changed} renamed (such as {_example(names)})" if changed else ""
    left = f", {len(entries) - len(kept)} left out" if len(kept) < len(entries) else ""
    _say([f"{target}: {len(kept)} tensors, {size}{renames}{left}; from {contents.kind} {contents.path}"])
    return Exit.DONE


def _check_target(source: Path, target: Path, force: bool) -> None:
    """A new file, or one that may be written over: never a device, nor a part of a checkpoint."""
    if target.exists() and not target.is_file():
        raise UserError(explain(f"{target} is a device or a pipe", "a new file", next_step="name another"))
    if target.exists() and not force:
        raise UserError(explain(f"{target} is there already", "a new file", next_step="name another, or --force"))
    home = target.resolve().parent
    ours = (home / "manifest.json").is_file() and (home / "trainer.pt").is_file()
    if ours or (source.is_dir() and home.is_relative_to(source.resolve()) and target.exists()):
        must = "the files of a checkpoint stay as they were written"
        raise UserError(explain(f"{target} would be a part of the checkpoint", must, next_step="name a file elsewhere"))


def diff(left: Path, right: Path, tolerance: float, key: str | None, limit: int, as_json: bool) -> Exit:
    """Say which tensors of two checkpoints differ, and by how much; one pair is in memory at a time.

    Args:
        left, right: checkpoints of any kind; their weights are compared.
        tolerance: the largest absolute difference that is let pass.
        key: which of several groups, in both.
        limit: so many lines, 0 for all.
        as_json: print JSON.

    Returns: DONE where all are equal or within the tolerance, else FAILED.

    Raises:
        UserError: where one is no checkpoint. RunError: where one is damaged.
    """
    from lockstep.runtime.foreign.compare import compare
    from lockstep.runtime.foreign.take import weights_in

    both = [_read(path, partial(weights_in, _opened(path), key)) for path in (left, right)]
    found = _read(left, lambda: list(compare(both[0], both[1], tolerance)))
    bad = [one for one in found if _differs(one, tolerance)]
    if as_json:
        print(
            json.dumps({"equal": not bad, "tensors": [_json(one) for one in found if one.verdict != "equal"]}, indent=2)
        )
    else:
        _say(_diff_lines(found, limit))
    return Exit.FAILED if bad else Exit.DONE


def _differs(one: "Compared", tolerance: float) -> bool:
    return one.verdict not in ("equal", "within") and not (one.verdict == "dtype" and tolerance > 0)


def _say(lines: Iterable[str]) -> None:
    """Print lines that hold names from a file, which may be anything."""
    from lockstep.runtime.foreign.names import printable

    for line in lines:
        print(printable(line))


def _diff_lines(found: "list[Compared]", limit: int) -> list[str]:
    from lockstep.runtime.foreign.words import difference

    rows = [one for one in found if one.verdict != "equal"]
    listed = rows[:limit] if limit else rows
    lines = [f"{one.name}: {difference(one)}" for one in listed]
    if len(rows) > len(listed):
        lines.append(f"... and {len(rows) - len(listed)} more: --limit 0 shows all")
    equal = sum(one.verdict == "equal" for one in found)
    renamed = [(one.left, one.right) for one in found if one.left and one.right and one.left != one.right]
    if renamed:
        lines.append(f"{len(renamed)} have another name on the other side, such as {renamed[0][0]} -> {renamed[0][1]}")
    if equal == len(found):
        lines.append(f"all {equal} tensors are equal, bit for bit")
    else:
        counts = {
            verdict: sum(one.verdict == verdict for one in found) for verdict in dict.fromkeys(o.verdict for o in rows)
        }
        told = ", ".join(f"{count} {_TOLD[verdict]}" for verdict, count in counts.items())
        lines.append(f"{len(found)} tensors: {equal} equal bit for bit, {told}")
    return lines


_TOLD = {
    "within": "within the tolerance",
    "differs": "of other values",
    "dtype": "of another type with the same values",
    "shape": "of another shape",
    "only left": "only in the first",
    "only right": "only in the second",
}


def _json(one: "Compared") -> dict[str, Any]:
    far = (
        {
            key: str(value) if isinstance(value, float | complex) else value
            for key, value in asdict(one.distance).items()
        }
        if one.distance
        else None
    )
    return {"left": one.left, "right": one.right, "verdict": one.verdict, "detail": one.detail, "distance": far}


def _opened(path: Path) -> "Contents":
    from lockstep.runtime.foreign.names import printable
    from lockstep.runtime.foreign.readers import open_checkpoint
    from lockstep.runtime.foreign.window import NoCheckpointError

    try:
        return _read(path, lambda: open_checkpoint(path))
    except NoCheckpointError as error:
        raise UserError(explain(printable(str(error)), _KINDS, next_step=error.todo)) from None


def _read(path: Path, reading: Callable[[], T]) -> T:
    """What reading gives; a damaged file is told as such.

    Raises:
        RunError: where it is damaged. UserError: where it cannot be read.
    """
    from lockstep.runtime.foreign.names import printable
    from lockstep.runtime.foreign.window import DamagedFileError

    try:
        return reading()
    except DamagedFileError as error:
        raise RunError(
            explain(printable(str(error)), "a whole checkpoint", next_step=f"lockstep ckpt verify {path}")
        ) from None
    except OSError as error:
        raise UserError(explain(f"{error.filename or path} cannot be read: {error.strerror or error}")) from None


def _form_of(target: Path, form: str | None) -> "Form":
    by_name = FORMS.get(target.suffix)
    if form is not None and form not in FORMS.values():
        raise UserError(explain(f"--to {form}", "safetensors or pt"))
    if form is None and by_name is None:
        raise UserError(explain(f"{target} has no known ending", "--to safetensors|pt, or a name such as weights.pt"))
    if form is not None and by_name not in (None, form):
        raise UserError(explain(f"--to {form} and the name {target.name}", "one of the two"))
    return "pt" if (form or by_name) == "pt" else "safetensors"


def _example(names: dict[str, str]) -> str:
    name, new = next((name, new) for name, new in names.items() if name != new)
    return f"{name} -> {new}"
