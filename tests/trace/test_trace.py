"""Reading what ranks have written."""

from pathlib import Path

import pytest

from lockstep.core.errors import UserError
from lockstep.trace.events import Batch, Collective, End, Pass, Seed, Start
from lockstep.trace.trace import RankTrace, Trace, rank_file, read_trace

CALL = (
    '{"e": "Collective", "number": 0, "op": "all_reduce", "given": [1.0], "done": false, "at": "a.py:1", "time": 5.0}'
)
DONE = '{"e": "Collective", "number": 0, "op": "all_reduce", "given": [1.0], "got": [3.0], "time": 6.0, "step": 1}'


def _write(folder: Path, rank: int, *lines: str, end: str = "\n") -> None:
    rank_file(folder, rank).write_text("\n".join(lines) + end)


def test_ranks_are_in_order(tmp_path: Path) -> None:
    for rank in (11, 2, 0):
        _write(tmp_path, rank, f'{{"e": "Seed", "lib": "torch", "value": {rank}}}')
    (tmp_path / "launcher.jsonl").write_text("")
    trace = read_trace(tmp_path, cut="hang")
    assert [rank.rank for rank in trace.ranks] == [0, 2, 11]
    assert trace.num_ranks == 3 and trace.cut == "hang"
    assert trace.each(Seed)[2] == (Seed(lib="torch", value=11),)


def test_lists_are_read_as_tuples(tmp_path: Path) -> None:
    _write(tmp_path, 0, '{"e": "Batch", "loader": 0, "stream": "s", "number": 0, "batch": 0, "rows": {"0": ["a"]}}')
    (batch,) = read_trace(tmp_path).each(Batch)[0]
    assert batch.rows == {"0": ("a",)}


def test_a_last_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    for cut in (1, len(DONE) // 2, len(DONE)):
        _write(tmp_path, 0, '{"e": "Seed", "lib": "torch", "value": 1}', DONE[:cut], end="")
        assert read_trace(tmp_path).ranks[0].events == (Seed(lib="torch", value=1),)


@pytest.mark.parametrize(
    "line",
    ["rubbish", "3", "[1]", "{}", '{"e": "Unknown"}', '{"e": "Seed"}', '{"e": "Seed", "x": 1}', '{"e": []}', "\x00"],
)
def test_a_line_that_is_no_event_is_named(tmp_path: Path, line: str) -> None:
    _write(tmp_path, 0, '{"e": "Seed", "lib": "torch", "value": 1}', line, DONE)
    with pytest.raises(UserError, match="line 2 is no event"):
        read_trace(tmp_path)


def test_a_folder_without_a_trace(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(UserError, match="holds no trace"):
            read_trace(folder)


def test_the_two_words_of_a_collective_are_one_event_at_the_call(tmp_path: Path) -> None:
    seed = '{"e": "Seed", "lib": "torch", "value": 1}'
    _write(tmp_path, 0, CALL, seed, DONE, CALL.replace('"number": 0', '"number": 1'))
    first, between, last = read_trace(tmp_path).ranks[0].events
    assert isinstance(first, Collective) and isinstance(last, Collective) and isinstance(between, Seed)
    assert (first.done, first.got, first.time, first.end, first.at, first.step) == (True, (3.0,), 5.0, 6.0, "a.py:1", 0)
    assert (last.done, last.got, last.end) == (False, (), 0.0), "it never returned"


def test_what_a_rank_can_be_asked() -> None:
    batch = Batch(loader=0, stream="s", number=0, batch=0)
    start, one = Start(script="a.py"), Pass(loader=0, stream="s", number=0)
    rank = RankTrace(0, (start, one, batch, End(how="returned")))
    assert list(rank.of(Pass, Batch)) == [one, batch]
    assert rank.start is start and rank.events_have_batches
    assert rank.end == End(how="returned")
    dead = RankTrace(0, (start, one))
    assert dead.end is None and not dead.events_have_batches
    assert Trace((rank, dead)).each(Batch) == ((batch,), ())
