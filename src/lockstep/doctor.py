"""`lockstep doctor`: what this machine, or these machines, can do, and what to mend before a run."""

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.core.errors import LockstepError, UserError, explain
from lockstep.core.files import check_writable, put_asked
from lockstep.core.outcome import Exit
from lockstep.core.wish import Wish

if TYPE_CHECKING:
    from lockstep.launch.health.check import Asked, Check
    from lockstep.launch.health.ranks import Measured
    from lockstep.launch.record import Failure

_STDOUT = "-"


def command(wish: Wish, json_to: str | None, clean_up: bool) -> Exit:
    """`lockstep doctor` as it is typed.

    Raises:
        UserError: options that do not fit together.
    """
    if clean_up:
        if wish != Wish() or json_to is not None:
            raise UserError(explain("--clean together with other options", "--clean alone", next_step="run it first"))
        return clean()
    from lockstep.launch.health.asking import asked

    return doctor(asked(wish), json_to)


def doctor(asked: "Asked", json_to: str | None = None) -> Exit:
    """Look at this machine, start the ranks, measure an all-reduce, and say what to do.

    Args:
        asked: how many ranks, on which machines, with which variables.
        json_to: a file for everything as JSON; "-" prints it instead of the text.

    Returns: DONE where nothing failed, else FAILED.

    Raises:
        UserError: the JSON file cannot be written.
    """
    from lockstep.launch.health import across, node, words

    quiet = json_to == _STDOUT
    if json_to is not None and not quiet:
        check_writable(Path(json_to), "--json")  # before seconds of work
    own = node.look(asked)
    if not quiet:
        print("\n".join(words.lines(own)), flush=True)
    measured, together = _measure(asked, own)
    if measured is not None:
        together = [*across.checks(measured), *together]
    if not quiet:
        _say_rest(asked, own, together, measured)
    if json_to is not None:
        text = json.dumps(words.values(own, together, measured, asked.nodes.node), indent=1, allow_nan=False)
        sys.stdout.write(text + "\n") if quiet else put_asked(Path(json_to), text + "\n", "--json")
    failed = any(check.status == "fail" for check in [*_all_nodes(own, measured), *together])
    return Exit.FAILED if failed else Exit.DONE


def clean() -> Exit:
    """Show what earlier runs of this user have left, end it and remove it.

    Returns: FAILED where a process could not be ended.
    """
    from lockstep.launch.earlier.cleaning import clean as end_all

    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        print(line, flush=True)

    left = end_all(say)
    if not said:
        print("nothing is left of earlier runs")
    return Exit.FAILED if left else Exit.DONE


def _measure(asked: "Asked", own: Sequence["Check"]) -> tuple["Measured | None", list["Check"]]:
    """Start the ranks. Returns: what they found, and what went wrong with them."""
    from lockstep.launch.health import node, ranks
    from lockstep.launch.health.check import Check
    from lockstep.launch.local import run_local
    from lockstep.launch.supervision import Supervision

    group, name = "all-reduce", "ranks"
    if asked.ranks_per_node * asked.nodes.num_nodes == 1:
        return None, [Check(group, name, "ok", "one rank: there is nothing to reduce")]
    try:
        with tempfile.TemporaryDirectory(prefix="lockstep_doctor-") as folder:
            result = Path(folder) / "measured"
            outcome = run_local(
                ranks.rank_main,
                (result, node.facts(), tuple(own)),
                asked.ranks_per_node,
                work_dir=Path(folder) / "run",
                supervision=Supervision(nodes=asked.nodes),
            )
            measured = ranks.read(result)
    except (LockstepError, OSError) as error:  # the ranks did not even start: a finding like any other
        return None, [Check(group, name, "fail", str(error))]
    if outcome.verdict.exit == Exit.INTERRUPTED:
        raise KeyboardInterrupt
    if outcome.verdict.exit != Exit.DONE:
        return None, [Check(group, name, "fail", *_why(outcome.verdict.text, outcome.failures))]
    if asked.nodes.node != 0:
        return None, [Check(group, name, "ok", "measured; node 0 shows it")]
    return measured, []


def _why(verdict: str, failures: Sequence["Failure"]) -> tuple[str, str]:
    """What is seen and what to do where ranks failed: a verdict speaks of the user's program, which this is not."""
    if any(failure.explained for failure in failures):
        return verdict, ""
    ours = ("  Where:", "  Next:", "  Logs:", "  Traceback")
    seen = [line for line in verdict.split("\n") if not line.startswith((*ours, "    "))]
    return "\n".join(seen), "mend first what failed above; NCCL_DEBUG=INFO and TORCH_CPP_LOG_LEVEL=INFO say more"


def _say_rest(asked: "Asked", own: Sequence["Check"], together: Sequence["Check"], measured: "Measured | None") -> None:
    from lockstep.launch.health import words

    others = [report for report in measured.nodes if report.node != asked.nodes.node] if measured else []
    for report in others:
        wanting = [check for check in report.checks if check.status != "ok"]
        title = f"node {report.node} ({report.host}): {words.tally(report.checks)}"
        print("\n".join(words.lines(wanting, title)))
    print("\n".join(words.lines(together)))
    if measured is not None:
        print("\n".join(words.table(measured)))
    print(words.tally([*_all_nodes(own, measured), *together]), flush=True)


def _all_nodes(own: Sequence["Check"], measured: "Measured | None") -> list["Check"]:
    return [check for report in measured.nodes for check in report.checks] if measured else list(own)
