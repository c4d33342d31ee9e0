import json

from tests.launch.conftest import Launch


def test_a_rank_leads_its_group_and_leaves_ctrl_c_to_the_launcher(launch: Launch) -> None:
    run = launch("show_environment", num_ranks=1)
    assert run.wait() == 0
    (rank,) = json.loads(run.stdout).values()
    assert rank["group"] is True
    assert rank["handler of SIGINT"] == "<Handlers.SIG_IGN: 1>"
    assert "/lockstep-" in rank["LOCKSTEP_FAILURES"]


def test_a_rank_that_is_done_ends_as_python_does(launch: Launch) -> None:
    run = launch("linger_in_thread")
    assert run.wait() == 0
    assert run.ready() == [0, 1]
    assert run.stdout == "exit handler\n" * 2
