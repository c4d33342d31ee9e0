"""A finished run as its numbers."""

import json
from pathlib import Path

from lockstep.proof.finished import read_journal, read_run, together
from lockstep.trace.events import Backward, Batch, End, Event, Start, Step
from lockstep.trace.sink import Sink
from lockstep.trace.trace import rank_file


def write(folder: Path, rank: int, events: list[Event]) -> None:
    sink = Sink(rank_file(folder, rank))
    for event in [Start(script="train.py", rank=rank, num_ranks=2), *events, End(how="returned")]:
        sink.put(event)
    sink.close()


def step(number: int, losses: tuple[float, ...], size: int) -> list[Event]:
    return [
        Batch(loader=0, stream="s", number=0, batch=number, ids=tuple(range(size)), size=size),
        *(Backward(loss=loss) for loss in losses),
        Step(optimizer=0, number=number, lr=(0.1 / (number + 1),)),
    ]


def test_a_trace_in_numbers(tmp_path: Path) -> None:
    write(tmp_path, 0, [*step(0, (1.0, 3.0), 4), *step(1, (1.0,), 4), *step(2, (9.0,), 4)])
    write(tmp_path, 1, [*step(0, (4.0,), 3), *step(1, (3.0,), 4)])
    run = read_run(tmp_path)
    assert run.losses == {(0, 1): 3.0, (1, 2): 2.0}
    assert run.rates == {1: 0.1, 2: 0.05}
    assert (run.num_ranks, run.steps, run.batch, run.ended, run.low) == (2, 2, 8, True, False)
    assert run.told == f"{tmp_path.name} (2 ranks, 2 steps, 8 samples a step)"


def test_a_folder_of_train_in_numbers(tmp_path: Path) -> None:
    lines = [{"step": 10, "loss": 2.0, "lr": 0.1}, {"step": 10, "val/loss": 1.0}, {"step": 20, "loss": None, "lr": 0.2}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + "{")
    manifest = {"num_ranks": 1, "global_batch": 32, "precision": "bf16"}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert [record["step"] for record in read_journal(tmp_path)] == [10, 20]
    run = read_run(tmp_path)
    assert (run.losses, run.rates) == ({(0, 10): 2.0}, {10: 0.1, 20: 0.2})
    assert (run.steps, run.ended, run.low, run.trace) == (20, False, True, None)


def test_spans_are_put_together_until_their_ends_meet() -> None:
    fine = {(0, 1): 4.0, (1, 2): 2.0, (2, 3): 3.0, (3, 4): 1.0}
    coarse = {(0, 2): 3.5, (2, 4): 2.5, (4, 6): 1.0}
    assert together(fine, coarse) == [((0, 2), 3.0, 3.5), ((2, 4), 2.0, 2.5)]
    assert together(coarse, coarse) == [(span, loss, loss) for span, loss in coarse.items()]
    assert together({}, fine) == []
    assert together({(2, 4): 1.0}, fine) == []
