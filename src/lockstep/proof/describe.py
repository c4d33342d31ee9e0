"""The page docs/rules.md, made of the rules' docstrings: `python -m lockstep.proof.describe > docs/rules.md`."""

import inspect
import re
from collections.abc import Mapping

from lockstep.proof.codes import PAGES
from lockstep.rules.pages import pages

INTRODUCTION = """\
# The rules

<!-- Made by `python -m lockstep.proof.describe > docs/rules.md`; change the docstrings of the rules. -->

What `lockstep verify` holds a run against. Each rule is one invariant of a law: ranks agree (SAME, LS1xx), ranks differ
(SPLIT, LS2xx), one rank acts (ONCE, LS3xx), some things follow the number of ranks as declared (SCALE,
LS4xx). A finding is an *error* (the training is not what it claims to be), a *deviation* (a choice that has to be
declared with `--accept`), or a *note*.

The examples are in `twins/`: two scripts for each rule, `before.py` with just that fault, `after.py` without it. Codes
from LS408 on are found by comparing runs, and have no twin.
"""
_HEADINGS = ("What must hold", "Why", "How it shows", "Fix", "Example")


def rules_page() -> str:
    """The whole page in Markdown."""
    every = {**pages(), **PAGES}
    parts = [INTRODUCTION, _index(every)]
    for code, (name, page) in sorted(every.items()):
        title, _, body = inspect.cleandoc(page).partition("\n")
        parts.append(f"## {code} {name}\n\n**{title.strip()}**\n\n{_sections(body)}\n")
    return "\n".join(parts)


def _index(every: Mapping[str, tuple[str, str]]) -> str:
    rows = [f"| [{code}](#{code.lower()}-{name}) | {_title(page)} |" for code, (name, page) in sorted(every.items())]
    return "\n".join(["| code | what must hold |", "|---|---|", *rows, ""])


def _title(page: str) -> str:
    return inspect.cleandoc(page).partition("\n")[0].strip()


def _sections(body: str) -> str:
    """Headings become bold words, and what is indented below them comes back to the margin."""
    found: list[str] = []
    lines: list[str] = []
    for line in [*body.splitlines(), *_HEADINGS[:1]]:
        heading = next((one for one in _HEADINGS if re.fullmatch(rf"{one}:?", line.strip())), None)
        inline = next((one for one in _HEADINGS if line.startswith(f"{one}: ")), None)
        if heading is not None or inline is not None:
            found += [_block(lines), ""] if lines else []
            rest = line.partition(": ")[2] if inline is not None else ""
            found.append(f"*{heading or inline}.*" + (f" {rest}" if rest else ""))
            lines = []
        else:
            lines.append(line)
    return "\n".join(found[:-1]).strip()


def _block(lines: list[str]) -> str:
    return inspect.cleandoc("\n" + "\n".join(lines)).strip()


if __name__ == "__main__":
    print(rules_page(), end="")
