import pytest

from lockstep.core.errors import UserError
from lockstep.jobs.wants import Wants, check_name, check_signal, check_time, name_from, seconds_of


@pytest.mark.parametrize("text", ["30", "30:00", "1:00:00", "01:30:00", "2-12", "2-12:30", "2-12:30:00"])
def test_times_that_slurm_reads(text: str) -> None:
    assert check_time(text) == text


@pytest.mark.parametrize("text", ["", "1h", "0", "00:00:00", "1:2:3:4", "1-", "-5", "one"])
def test_times_that_it_does_not(text: str) -> None:
    with pytest.raises(UserError, match="HOURS:MM:SS"):
        check_time(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [("My_Run.py", "my-run-py"), ("train", "train"), ("3d-unet", "d-unet"), ("___", "lockstep"), ("a" * 60, "a" * 40)],
)
def test_a_name_of_any_text(text: str, name: str) -> None:
    assert name_from(text) == name
    assert check_name(name) == name


@pytest.mark.parametrize("text", ["", "A", "1a", "a-", "a_b", "a" * 41, "a b"])
def test_names_that_a_cluster_refuses(text: str) -> None:
    with pytest.raises(UserError, match="small letters"):
        check_name(text)


def test_ranks_of_a_node() -> None:
    assert Wants("a", gpus=4).ranks_per_node == 4
    assert Wants("a", gpus=4, ranks=2).ranks_per_node == 2
    assert Wants("a").ranks_per_node == 1


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5", 300), ("5:30", 330), ("1:05:30", 3930), ("2-3", 183600), ("2-3:04", 183840), ("0-0:00:09", 9)],
)
def test_a_time_in_seconds(text: str, seconds: int) -> None:
    assert seconds_of(text) == seconds


def test_a_signal_that_would_come_at_once_is_refused() -> None:
    check_signal(120, "00:10:00")
    check_signal(120, "")
    with pytest.raises(UserError, match="--signal-s 600 with --time 5"):
        check_signal(600, "5")
