"""Who touched which file."""

from lockstep.rules.evidence import files
from lockstep.trace.trace import RankTrace, Trace
from tests.rules.by_hand import file, moved, steps, trace


def test_a_move_counts_for_its_target() -> None:
    run = trace([file("save", "a.tmp"), moved("a.tmp", "a.pt"), file("load", "a.pt")])
    assert set(files.writes(run)) == {"/home/me/a.tmp", "/home/me/a.pt"}
    assert set(files.reads(run)) == {"/home/me/a.pt"}


def test_trained_or_not() -> None:
    run = trace([file("write", "a"), *steps(), file("write", "b")])
    found = files.writes(run)
    assert [found[f"/home/me/{name}"][0].trained for name in "ab"] == [False, True]


def test_names_as_the_user_knows_them() -> None:
    run = trace([])
    assert files.shown(run, "/home/me/runs/a.pt") == "runs/a.pt"
    assert files.shown(run, "/data/a.pt") == "/data/a.pt"
    assert files.named(run, ["/home/me/a", "/home/me/b"]) == "a and 1 more"


def test_a_file_written_at_each_step_is_looked_at_in_bounded_time() -> None:
    run = [event for _ in range(2000) for event in (*steps(), file("write", "log"))]
    assert [path for path, _, _ in files.contested(trace(run, run))] == ["/home/me/log"]


def test_a_tracker_has_its_own_rule() -> None:
    run = [*steps(), file("write", "wandb/latest-run")]
    assert not list(files.contested(trace(run, run)))


def test_a_rank_that_could_not_tell_who_it_is() -> None:
    run = Trace((RankTrace(0, ()), RankTrace(1, ())))
    assert files.shown(run, "/home/me/a") == "/home/me/a"
    assert not files.of_each_node(run, [])
