"""Words of the command line become one call of a verb; help is quick; exit codes are those that scripts rely on."""

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lockstep import cli
from lockstep.cli import parse_nproc, with_optional_values
from lockstep.core.errors import RunError, UserError
from lockstep.core.outcome import Exit
from lockstep.core.wish import Wish

Call = tuple[Path | None, list[str], Wish, int | None, str | None, bool, bool]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ("train --resume", "train --resume="),
        ("train --resume runs/a", "train --resume runs/a"),
        ("train --resume --nproc 2", "train --resume= --nproc 2"),
        ("train --nproc 2 --resume", "train --nproc 2 --resume="),
        ("train --resume stop.epochs=3", "train --resume= stop.epochs=3"),
        ("train stop.epochs=3 --resume", "train stop.epochs=3 --resume="),
        ("train --resume=runs/a=b", "train --resume=runs/a=b"),
        ("train --resume= --max-steps 3", "train --resume= --max-steps 3"),
        ("train config.yaml", "train config.yaml"),
        ("verify train.py -- --resume", "verify train.py -- --resume"),
        ("run --record a train.py --resume", "run --record a train.py --resume"),
        ("", ""),
    ],
)
def test_resume_takes_a_folder_only_where_one_follows(argv: str, expected: str) -> None:
    assert with_optional_values(argv.split()) == expected.split()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """The calls of the verb, in place of the verb."""
    made: list[Call] = []

    def verb(*args: Any) -> Exit:
        made.append(args[:7])  # type: ignore[arg-type]  # --anomaly has a test of its own
        return Exit.DONE

    monkeypatch.setattr("lockstep.train.train", verb)
    return made


def run(monkeypatch: pytest.MonkeyPatch, argv: str) -> int:
    monkeypatch.setattr(sys, "argv", ["lockstep", *argv.split()])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ("train", (None, [], Wish(), None, None, False, False)),
        ("train c.yaml a.b=1 --nproc 3", (Path("c.yaml"), ["a.b=1"], Wish(nproc=3), None, None, False, False)),
        ("train a.b=1 c.yaml d=2 --nproc auto", (Path("c.yaml"), ["a.b=1", "d=2"], Wish(), None, None, False, False)),
        ("train --max-steps 7", (None, [], Wish(), 7, None, False, False)),
        ("train a=1 --all-ranks", (None, ["a=1", "log.all_ranks=true"], Wish(), None, None, False, False)),
        ("train --show-config", (None, [], Wish(), None, None, True, False)),
        ("train --resume", (None, [], Wish(), None, "", False, False)),
        ("train --resume runs/x a=1", (None, ["a=1"], Wish(), None, "runs/x", False, False)),
        ("train a=1 --resume --nproc 2 b=2", (None, ["a=1", "b=2"], Wish(nproc=2), None, "", False, False)),
        ("train --resume --max-steps 2", (None, [], Wish(), 2, "", False, False)),
        ("train --max-steps 2 --resume runs/x", (None, [], Wish(), 2, "runs/x", False, False)),
        ("train --show-config --resume", (None, [], Wish(), None, "", True, False)),
        ("train --all-ranks --resume", (None, ["log.all_ranks=true"], Wish(), None, "", False, False)),
        ("train --resume-or-start run.dir=x", (None, ["run.dir=x"], Wish(), None, None, False, True)),
        (
            "train --nnodes 2 --node-rank 1 --master a:5 --node-wait 9 --restarts 3 --stall-timeout 60",
            (None, [], Wish(None, 2, 1, "a:5", 9.0, 3, 60.0), None, None, False, False),
        ),
    ],
)
def test_words_reach_the_verb(monkeypatch: pytest.MonkeyPatch, calls: list[Call], argv: str, expected: Call) -> None:
    assert run(monkeypatch, argv) == 0
    assert calls == [expected]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("train --nproc 0", "--nproc 0"),
        ("train --nproc -1", "--nproc -1"),
        ("train --nproc 1.5", "--nproc 1.5"),
        ("train --nproc two", "auto, or a whole number from 1"),
        ("train --nproc ²", "--nproc ²"),
        ("train a.yaml b.yaml", "2 configs: a.yaml, b.yaml"),
        ("train --max-steps 0", "--max-steps"),
        ("train --max-steps few", "--max-steps"),
        ("train --nproc", "--nproc"),
        ("train --no-such-option", "--no-such-option"),
        ("trian", "Did you mean 'train'?"),
        ("submit slrum a.yaml", "Did you mean 'slurm'?"),
        ("ckpt shwo runs/a", "Did you mean 'show'?"),
        ("train --hepl", "Possible options: --help"),
        ("train --resum", "Possible options: --resume"),
        ("verify --aginst a.py b.py", "--against"),
        ("run --hepl train.py", "did you mean --help?"),
        ("run --xyz train.py", "lockstep run --help"),
        ("scan --split test", "train, val or all"),
        ("scan --workers 0", "auto, or a whole number from 1"),
        ("completion csh", "one of bash, zsh, fish"),
        ("init a b", "unexpected extra argument"),
    ],
)
def test_wrong_words_end_with_2_and_say_which(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], calls: list[Call], argv: str, words: str
) -> None:
    assert run(monkeypatch, argv) == Exit.MISUSE
    said = capsys.readouterr().err
    assert words in said and "Traceback" not in said
    assert not calls


@pytest.mark.parametrize("code", list(Exit))
def test_the_verb_chooses_the_exit_code(monkeypatch: pytest.MonkeyPatch, code: Exit) -> None:
    monkeypatch.setattr("lockstep.train.train", lambda *_: code)
    assert run(monkeypatch, "train") == code


@pytest.mark.parametrize(
    ("error", "code", "shown"),
    [
        (UserError("a mistake"), Exit.MISUSE, "a mistake\n"),
        (RunError("it failed"), Exit.FAILED, "it failed\n"),
        (KeyboardInterrupt(), Exit.INTERRUPTED, ""),
    ],
)
def test_an_error_is_its_words_and_its_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: Exit,
    shown: str,
) -> None:
    def verb(*_: Any) -> Exit:
        raise error

    monkeypatch.setattr("lockstep.train.train", verb)
    assert run(monkeypatch, "train") == code
    assert capsys.readouterr().err.strip() == shown.strip()


def test_numbers_of_ranks() -> None:
    assert [parse_nproc(text) for text in ("auto", "1", "16")] == [None, 1, 16]


def command(*argv: str, block: bool = True) -> subprocess.CompletedProcess[str]:
    """`lockstep argv` in a fresh interpreter, in which torch cannot be imported."""
    code = f"import sys\nsys.modules['torch'] = None\nsys.argv = ['lockstep', *{list(argv)!r}]\n"
    code += "from lockstep.cli import main\nmain()"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "argv",
    [
        ("--help",),
        ("train", "-h"),
        ("scan", "--help"),
        ("--version",),
        ("completion", "bash"),
        ("schema",),
        ("train", "--show-config"),
    ],
)
def test_help_version_and_config_need_no_torch(argv: tuple[str, ...]) -> None:
    done = command(*argv)
    assert done.returncode == 0, done.stderr
    assert done.stdout and not done.stderr


def test_help_names_every_option() -> None:
    shown = command("train", "--help").stdout
    for words in ("[CONFIG] [KEY=VALUE]...", "--nproc", "--max-steps", "--resume", "--show-config", "--all-ranks"):
        assert words in shown


def test_bad_words_need_no_torch() -> None:
    done = command("train", "optim.lrr=1")
    assert done.returncode == Exit.MISUSE
    assert "did you mean optim.lr?" in done.stderr and "Traceback" not in done.stderr


def test_help_takes_at_most_300_ms() -> None:
    """Of processor time, best of three: on a busy machine the clock shows the others' work too."""
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "lockstep", "--help"], capture_output=True, check=True, env=os.environ)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    assert min(spent) <= 0.3


def test_the_search_for_an_anomaly_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bool] = []
    monkeypatch.setattr("lockstep.train.train", lambda *args: made.append(args[7]) or Exit.DONE)
    assert run(monkeypatch, "train") == run(monkeypatch, "train --anomaly") == 0
    assert made == [False, True]


def test_scan_gets_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[Any, ...]] = []
    monkeypatch.setattr("lockstep.scan.scan", lambda *args: made.append(args) or Exit.FAILED)
    assert run(monkeypatch, "scan") == 1
    assert run(monkeypatch, "scan c.yaml a=1 --split val --workers 2 --json - --show 3 --timeout 5") == 1
    assert made == [
        (None, [], "all", None, None, 10, 60.0),
        (Path("c.yaml"), ["a=1"], "val", 2, "-", 3, 5.0),
    ]


def test_init_takes_a_folder_or_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []
    monkeypatch.setattr("lockstep.init.init", lambda folder: made.append(folder) or Exit.DONE)
    assert run(monkeypatch, "init") == run(monkeypatch, "init a/b") == 0
    assert made == [Path(), Path("a/b")]


def test_without_words_it_shows_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "") == Exit.MISUSE
    captured = capsys.readouterr()
    assert "train" in captured.out + captured.err
