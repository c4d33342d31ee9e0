"""The command line of `ckpt`: every option arrives, every end has its exit code, no traceback."""

from pathlib import Path

import pytest
import torch

from tests.commands import lockstep
from tests.runtime.foreign.samples import lightning, net
from tests.runtime.state.snapshots import written


@pytest.mark.parametrize("verb", ["show", "verify", "convert", "diff"])
def test_every_verb_is_explained(tmp_path: Path, verb: str) -> None:
    done = lockstep(tmp_path / "here", "ckpt", verb, "--help")
    assert done.code == 0 and "Usage: lockstep ckpt" in done.stdout


def test_from_the_command_line(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    lightning(here / "a.ckpt", 1)
    written(here / "run" / "checkpoints", 1)
    torch.save(net(2).state_dict(), here / "other.pt")
    (here / "empty.pt").touch()
    words = [
        "--strip",
        "model.",
        "--add",
        "net.",
        "--only",
        "*",
        "--dtype",
        "fp32",
        "--key",
        "state_dict",
        "--to",
        "pt",
    ]
    for argv, code, told in (
        (["convert", "a.ckpt", "w.bin", *words], 0, "w.bin: 9 tensors"),
        (["convert", "a.ckpt", "w.bin", *words], 2, "is there already"),
        (["convert", "a.ckpt", "w.bin", *words, "--force"], 0, "w.bin: 9 tensors"),
        (["show", "a.ckpt", "--filter", "*.bias", "--limit", "1", "--no-values"], 0, "... and 2 more"),
        (["show", "a.ckpt", "--json"], 0, '"kind": "Lightning checkpoint"'),
        (["verify", "run"], 0, "a resume takes step-00000001"),
        (["verify", "run", "--json"], 0, '"whole": true'),
        (["verify", "empty.pt"], 2, "is empty (0 bytes)"),
        (["diff", "a.ckpt", "w.bin", "--tolerance", "0.1", "--limit", "3"], 0, "equal, bit for bit"),
        (["diff", "w.bin", "other.pt", "--json"], 1, '"verdict": "differs"'),
        (["diff", "w.bin", "other.pt", "--key", "zzz"], 2, "'zzz' is not in"),
    ):
        done = lockstep(here, "ckpt", *argv)
        assert done.code == code, (argv, done.output)
        assert told in done.output and "Traceback" not in done.output
