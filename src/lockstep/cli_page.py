"""The page docs/command-line.md, made of what `--help` says: `python -m lockstep.cli_page > docs/command-line.md`."""

from collections.abc import Iterator
from typing import Any

import typer

from lockstep.cli import app

WIDTH = 78

INTRODUCTION = """\
# The command line

<!-- Made by `python -m lockstep.cli_page > docs/command-line.md`; change the verbs, or the text in that module. -->

`lockstep VERB --help` says what a verb takes, with an example or two. A verb or an option that is mistyped is answered
with the nearest one; an error says what was seen, what must hold, where, and what to do next.

`train` and `scan` take a config file and `key=value` words in any order ([every key](config.md)). What stands after the
script of `run`, and after `--` of `verify`, is the script's.

## Completion

    source <(lockstep completion bash)          # in ~/.bashrc
    source <(lockstep completion zsh)           # in ~/.zshrc, after compinit
    lockstep completion fish > ~/.config/fish/completions/lockstep.fish

TAB then completes verbs, options and files, and in a config's words:

| typed | offered |
|---|---|
| `recipe=` | built-in recipes, folders, and the classes of Python files that are recipes |
| `opt` | `optim.` and `options.` |
| `optim.` | `optim.name=`, `optim.lr=` and the other keys of the section |
| `run.device=` | `auto`, `cpu`, `cuda` |
| `options.` | the keyword arguments of the recipe, that of `recipe=` or of the config file on the line |

Nothing is imported for it but the command line itself: an answer takes about a tenth of a second. bash cuts words at
`=`, so it shows only what comes after it.

## Editors

    lockstep schema --output .config.schema.json

writes the config as a JSON schema (draft 2020-12). Editors that know YAML schemas (VS Code with the YAML extension,
Neovim and others with yaml-language-server, PyCharm) then complete keys, show what they mean, and mark a wrong one. The
first line of the config names the file:

```yaml
# yaml-language-server: $schema=.config.schema.json
recipe: points
optim:
  lr: 0.01
```

`lockstep init` writes both. What must hold between two keys is not in the schema; `lockstep train --show-config` checks
that too, and starts nothing.

"""


def command_page() -> str:
    """The whole page in Markdown."""
    root = typer.main.get_command(app)
    context = root.make_context("lockstep", [], resilient_parsing=True, terminal_width=WIDTH)
    parts = [f"## All verbs\n\n{_block(root.get_help(context))}"]
    parts += [f"## lockstep {name}\n\n{_block(text)}" for name, text in _helps(root, context, "")]
    return INTRODUCTION + "\n".join(parts)


def _helps(group: Any, context: Any, prefix: str) -> Iterator[tuple[str, str]]:
    for name, verb in group.commands.items():
        if verb.hidden:
            continue
        own = verb.make_context(name, [], parent=context, resilient_parsing=True)
        yield f"{prefix}{name}", verb.get_help(own)
        if hasattr(verb, "commands"):
            yield from _helps(verb, own, f"{prefix}{name} ")


def _block(text: str) -> str:
    return f"```text\n{text.strip()}\n```\n"


if __name__ == "__main__":
    print(command_page(), end="")
