"""The page docs/config.md, made of the schema: `python -m lockstep.runtime.config.describe > docs/config.md`."""

from collections.abc import Iterable

from lockstep.runtime.config.fields import FieldDoc, fields, sections
from lockstep.runtime.config.problem import show

INTRODUCTION = """\
# The config, field by field

<!-- Made by `python -m lockstep.runtime.config.describe > docs/config.md`; change the descriptions in the schema. -->

    lockstep train [CONFIG] [key=value ...]

A config says all of a run but the number of ranks: the same one runs on one process and on many. CONFIG is a YAML file
with these keys, and every key can be left out. `key=value` words override it: `optim.lr=3e-4 batch.global_batch=32`.
The value is read as YAML: `null` means none, and a list is `optim.betas=[0.9,0.95]`.

Later ones win: the defaults below, the defaults that come with a built-in recipe, CONFIG, the `key=value` words.
`lockstep train --show-config` prints the outcome. A CONFIG that has every top-level key, as the `config.yaml` of a run
has, stands for itself: the recipe's defaults are left out.

A value may refer to another one, `${optim.lr}`, or to the environment, `${oc.env:HOME}`; `\\${` stands for
a plain `${`. An empty section sets nothing. Types are strict: text in quotes is no number, and `1.0` is no whole number
(`1` is fine where a number is asked for). All mistakes are reported at once, before anything starts.
"""


def config_page() -> str:
    """The whole page in Markdown."""
    parts = [
        INTRODUCTION,
        "## At the top level\n",
        _table(field for field in fields().values() if len(field.path) == 1),
    ]
    for name, about in sections().items():
        own = (field for field in fields().values() if len(field.path) == 2 and field.path[0] == name)
        parts += [f"## {name}\n", f"{about}\n", _table(own)]
    return "\n".join(parts)


def _table(rows: Iterable[FieldDoc]) -> str:
    lines = ["| key | allowed | default | meaning |", "|---|---|---|---|"]
    lines += [f"| `{'.'.join(row.path)}` | {row.allowed} | `{show(row.default)}` | {row.meaning} |" for row in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(config_page(), end="")
