import select

from lockstep.launch.nodes.wakeup import Wakeup


def test_many_calls_end_one_wait() -> None:
    wakeup = Wakeup()
    for _ in range(100_000):  # more than the pipe takes
        wakeup.wake()
    assert select.select([wakeup.sock], [], [], 0)[0]
    wakeup.clear()
    assert not select.select([wakeup.sock], [], [], 0)[0]
    wakeup.close()
    wakeup.wake()
