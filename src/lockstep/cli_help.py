"""How `--help` looks: verbs grouped by what one wants, options by what they are about, examples at the end."""

from collections.abc import Iterable, Sequence
from typing import Any

from typer.core import TyperCommand, TyperGroup

OWN = "Options"
"""The heading of options that belong to no group of their own."""
RANKS = "Ranks and machines"
FAILURES = "When something fails"
REPORTS = "Reports"
START, TRAIN, PROVE, LAUNCH = "Start", "Train", "Prove", "Launch"
LOOK, SHELL = "Look at what is saved", "Editor and shell"
ORDER = (START, TRAIN, PROVE, LAUNCH, LOOK, SHELL)
"""The groups of verbs, as one comes to them."""


class Verb(TyperCommand):
    """One verb: usage as it is typed, arguments, options in groups, examples."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """`[OPTIONS] [CONFIG] [KEY=VALUE]...`: metavars say by themselves what may be left out or repeated."""
        return ["[OPTIONS]", *(_argument(param) for param in self.get_params(ctx) if _is_argument(param))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then the groups of options in the order in which they are declared."""
        params: list[Any] = list(self.get_params(ctx))
        rows = [(_argument(param), param.help or "") for param in params if _is_argument(param)]
        _section(formatter, "Arguments", rows)
        for heading, group in _grouped(params).items():
            _section(formatter, heading, _rows(group, ctx))

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """The examples, a line each, as they are."""
        _verbatim(formatter, "Examples", (self.epilog or "").strip().splitlines())


class Verbs(TyperGroup):
    """Several verbs: those of one group under its heading."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The verbs first: they are what one is looking for."""
        self.format_commands(ctx, formatter)
        _section(formatter, OWN, _rows(self.get_params(ctx), ctx))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Each verb in one line, all lines beginning in one column."""
        groups: dict[str, list[tuple[str, str]]] = {heading: [] for heading in ORDER}
        visible = [(name, verb) for name, verb in self.commands.items() if not verb.hidden]
        column = max(len(name) for name, _ in visible)
        for name, verb in visible:
            heading = getattr(verb, "rich_help_panel", None)
            groups.setdefault(heading if isinstance(heading, str) else "Verbs", []).append((name, first_sentence(verb)))
        for heading, rows in groups.items():
            _section(formatter, heading, [(f"{name:<{column}}", about) for name, about in rows])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Paragraphs that begin with a heading of their own; lines as they are."""
        for block in filter(None, (self.epilog or "").strip().split("\n\n")):
            heading, *lines = block.splitlines()
            _verbatim(formatter, heading.rstrip(":"), lines)


def first_sentence(verb: Any) -> str:
    """What a verb does, in a line; longer ones are wrapped, never cut."""
    paragraph = " ".join((verb.help or "").strip().partition("\n\n")[0].split())
    return f"{paragraph.partition('. ')[0].rstrip('.')}."


def _is_argument(param: Any) -> bool:
    return bool(param.param_type_name == "argument")


def _argument(param: Any) -> str:
    return str(param.metavar or param.name.upper())


def _grouped(params: Iterable[Any]) -> dict[str, list[Any]]:
    groups: dict[str, list[Any]] = {OWN: []}
    for param in params:
        if not _is_argument(param):
            panel = getattr(param, "rich_help_panel", None)
            groups.setdefault(panel if isinstance(panel, str) else OWN, []).append(param)
    return groups


def _rows(params: Iterable[Any], ctx: Any) -> list[tuple[str, str]]:
    """An option and what it says, with its default in brackets; limits are told when they are crossed."""
    rows = []
    for param in params:
        if record := param.get_help_record(ctx):
            text, default = param.help or "", param.default
            said = (
                param.show_default
                and isinstance(default, int | float | str)
                and not isinstance(default, bool)
                and default != ""
            )
            rows.append((record[0], f"{text.rstrip('.')} ({_plain(default)})." if said else text))
    return rows


def _plain(value: int | float | str) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _section(formatter: Any, heading: str, rows: Sequence[tuple[str, str]]) -> None:
    if rows:
        with formatter.section(heading):
            formatter.write_dl(rows)


def _verbatim(formatter: Any, heading: str, lines: Sequence[str]) -> None:
    if lines:
        with formatter.section(heading):
            for line in lines:
                formatter.write(f"{'':{formatter.current_indent}}{line.rstrip()}\n")
