import os
import signal
import threading
import time

import psutil
import pytest

from lockstep.launch.signals import SignalWatch
from tests.launch.conftest import Launch


@pytest.mark.parametrize(
    "number, code, text",
    [
        (signal.SIGINT, 130, "Interrupted: all ranks were ended.\n"),
        (signal.SIGTERM, 1, "Ended by SIGTERM: all ranks were ended at once, nothing was saved.\n"),
        (signal.SIGHUP, 1, "The terminal closed (SIGHUP): all ranks were ended at once.\n"),
    ],
)
def test_a_signal_to_the_launcher_ends_all_with_one_line(
    launch: Launch, number: signal.Signals, code: int, text: str
) -> None:
    run = launch("work_for_ever")
    ranks = run.until_ready()
    os.killpg(run.pid, number)  # as a terminal does
    os.killpg(run.pid, number)
    assert run.wait(5) == code
    assert run.stderr == text
    assert [rank for rank in ranks if rank.is_running()] == []
    assert not run.work_dir.exists()


def test_ctrl_z_pauses_the_ranks_too(launch: Launch) -> None:
    run = launch("work_for_ever")
    everyone = [psutil.Process(run.pid), *run.until_ready()]
    os.kill(run.pid, signal.SIGTSTP)
    wait_for(everyone, psutil.STATUS_STOPPED, True)
    os.kill(run.pid, signal.SIGCONT)
    wait_for(everyone, psutil.STATUS_STOPPED, False)
    os.kill(run.pid, signal.SIGINT)
    assert run.wait(5) == 130


def wait_for(processes: list[psutil.Process], status: str, wanted: bool) -> None:
    deadline = time.monotonic() + 5
    while any((one.status() == status) is not wanted for one in processes):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_signals_are_noted_and_handlers_put_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGTSTP)]
    with SignalWatch() as watch:
        assert watch.ended_by is None
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert watch.ended_by is signal.SIGTERM
        assert not watch.stop_asked
        signal.raise_signal(signal.SIGTSTP)
        assert watch.stop_asked
    assert before == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGTSTP)]


def test_held_signals_come_after_our_handlers_are_back() -> None:
    with SignalWatch() as watch:
        with watch.held():
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
            assert watch.ended_by is None
        assert watch.ended_by is signal.SIGTERM


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with SignalWatch() as watch:
            signal.raise_signal(signal.SIGHUP)
            assert watch.ended_by is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_outside_the_main_thread_nothing_is_changed() -> None:
    before = signal.getsignal(signal.SIGINT)

    def enter() -> None:
        with SignalWatch(), SignalWatch().held():
            pass

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGINT) is before
