import pytest

from lockstep.launch.advice import next_step
from lockstep.launch.record import Failure, Kind


def failed(message: str, kind: Kind = "exception", where: str = "a.py:1 in f") -> Failure:
    return Failure(0, kind, message, where, "", "", 0, 1)


@pytest.mark.parametrize(
    "message, words",
    [
        ("was killed by SIGKILL (by the kernel's", "memory ran out"),
        ("was killed by SIGKILL: by the kernel's out-of-memory killer (memory ran out)", "less memory"),
        ("was killed by SIGKILL: from outside (the kernel has ended no process for lack of memory)", "who sent it"),
        ("called os._exit(3)", "no rank may end by itself"),
        ("crashed with a bus error (SIGBUS", "shared memory"),
        ("OutOfMemoryError: CUDA out of memory. Tried to allocate", "batch.micro_batch"),
        ("crashed with a segmentation fault (SIGSEGV)", "compiled extension"),
        ("RuntimeError: DataLoader worker (pid 3) exited unexpectedly", "data.workers=0"),
        ("left early: its process ended", "same steps"),
        ("called sys.exit(3)", "raise an exception"),
        ("was ended by SIGTERM (from outside)", "outside"),
        ("ValueError: no", "mend that line"),
    ],
)
def test_advice_fits_the_failure(message: str, words: str) -> None:
    assert words in next_step(failed(message))


def test_a_lost_connection_without_a_cause() -> None:
    assert "another path" in next_step(failed("RuntimeError: gloo", "consequence"))


def test_nothing_to_say() -> None:
    assert next_step(failed("Interrupted.", "interrupt")) == ""
    assert next_step(failed("odd", where="")).startswith("run it with")
