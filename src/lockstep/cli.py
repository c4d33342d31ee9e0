"""argv -> one verb -> exit code. No logic here, and no torch for --help. The words of each verb are in cli_*.py."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from lockstep import __version__
from lockstep.cli_ckpt import CKPT_EXAMPLES, ckpt_app
from lockstep.cli_help import LAUNCH, LOOK, PROVE, SHELL, START, TRAIN, Verb, Verbs
from lockstep.cli_options import parse_nproc
from lockstep.cli_prove import DOCTOR_EXAMPLES, VERIFY_EXAMPLES, doctor, verify
from lockstep.cli_submit import SUBMIT_EXAMPLES, submit_app
from lockstep.cli_train import RUN_EXAMPLES, SCAN_EXAMPLES, TRAIN_EXAMPLES, run, scan, train
from lockstep.core.errors import LockstepError
from lockstep.core.outcome import Exit

__all__ = ["app", "main", "parse_nproc", "with_optional_values"]

EPILOG = """
Examples:
lockstep init my-project            a project that trains at once
lockstep train config.yaml          on all GPUs, or on 2 processes of a CPU
lockstep verify train.py            proof on a laptop, no GPU needed

Exit codes:
  0  done, or proven
  1  the run or a rung failed, or something bad was found
  2  your mistake: a word, a file, a value
  3  nothing failed, but something could not be judged
 75  stopped when asked to, after saving
130  interrupted
"""

app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    subcommand_metavar="VERB ...",
    options_metavar="",
    epilog=EPILOG,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _version(asked: bool) -> None:
    if asked:
        print(f"lockstep {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it and exit.")
    ] = False,
) -> None:
    """Take a PyTorch training from one process to many, and prove that it is still the same training."""


def init(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="A new or an empty folder; else the current one.")] = (
        Path()
    ),
) -> None:
    """Make a small project that trains at once.

    Configuration, distributed set-up, data set, model, training, and a test that proves it. Nothing that is there is
    overwritten.
    """
    from lockstep.init import init as verb

    raise typer.Exit(int(verb(folder)))


INIT_EXAMPLES = """
lockstep init my-project
cd my-project && lockstep train config.yaml
"""


def schema(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it there; else it is printed.")
    ] = None,
) -> None:
    """Print the JSON schema of a config, for editors."""
    from lockstep.schema import schema as verb

    raise typer.Exit(int(verb(output)))


SCHEMA_EXAMPLES = """
lockstep schema --output .config.schema.json
"""


def completion(
    shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", help="The shell that is to complete.")],
) -> None:
    """Print what makes a shell complete verbs and config keys."""
    from lockstep.completion import script

    print(script(shell), end="")


COMPLETION_EXAMPLES = """
source <(lockstep completion bash)
lockstep completion fish > ~/.config/fish/completions/lockstep.fish
"""

ITS_OWN_WORDS = {"allow_interspersed_args": False, "ignore_unknown_options": True}
"""What stands after the script's name is the script's."""

# In the order of a first day: a project, a training, its proof, its launch, its results.
app.command(cls=Verb, rich_help_panel=START, epilog=INIT_EXAMPLES)(init)
app.command(cls=Verb, rich_help_panel=TRAIN, epilog=TRAIN_EXAMPLES)(train)
app.command(cls=Verb, rich_help_panel=TRAIN, epilog=SCAN_EXAMPLES)(scan)
app.command(cls=Verb, rich_help_panel=PROVE, epilog=VERIFY_EXAMPLES)(verify)
app.command(cls=Verb, rich_help_panel=LAUNCH, epilog=RUN_EXAMPLES, context_settings=ITS_OWN_WORDS)(run)
app.add_typer(
    submit_app,
    name="submit",
    cls=Verbs,
    subcommand_metavar="VERB ...",
    options_metavar="",
    rich_help_panel=LAUNCH,
    epilog=SUBMIT_EXAMPLES,
)
app.command(cls=Verb, rich_help_panel=LAUNCH, epilog=DOCTOR_EXAMPLES)(doctor)
app.add_typer(
    ckpt_app,
    name="ckpt",
    help="Look into checkpoints, ours and others.",
    cls=Verbs,
    subcommand_metavar="VERB ...",
    options_metavar="",
    rich_help_panel=LOOK,
    epilog=CKPT_EXAMPLES,
)
app.command(cls=Verb, rich_help_panel=SHELL, epilog=SCHEMA_EXAMPLES)(schema)
app.command(cls=Verb, rich_help_panel=SHELL, epilog=COMPLETION_EXAMPLES)(completion)


def with_optional_values(argv: list[str]) -> list[str]:
    """Give `train --resume` an empty value where none follows, which click cannot express beside free arguments."""
    if argv[:1] != ["train"]:  # elsewhere such a word is the user's script's
        return argv
    result = []
    for position, item in enumerate(argv):
        following = argv[position + 1] if position + 1 < len(argv) else "-"
        bare = item == "--resume" and (following.startswith("-") or "=" in following)
        result.append("--resume=" if bare else item)
    return result


def main() -> None:
    """The command `lockstep`."""
    try:
        if sys.argv[1:2] == ["__complete"]:  # what the scripts of `lockstep completion` ask
            from lockstep.cli_complete import answer

            print("\n".join(answer(typer.main.get_command(app), sys.argv[2:])))
            return
        app(with_optional_values(sys.argv[1:]), prog_name="lockstep")
    except LockstepError as error:
        print(error, file=sys.stderr)
        sys.exit(int(error.exit_code))
    except KeyboardInterrupt:
        sys.exit(int(Exit.INTERRUPTED))
