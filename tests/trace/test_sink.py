"""Events on their way to the file."""

import threading
from pathlib import Path

import numpy as np
import pytest

from lockstep.trace.events import Event, Schedule, Seed
from lockstep.trace.sink import Sink, TensorFile, read_tensor, tensor_file
from lockstep.trace.trace import rank_file, read_trace


def _seeds(count: int, time: float = 1.0, first: int = 0) -> list[Event]:
    return [Seed(lib="torch", value=first + number, time=time) for number in range(count)]


def _told(folder: Path) -> tuple[Event, ...]:
    return read_trace(folder).ranks[0].events


def test_no_more_than_512_events_are_held(tmp_path: Path) -> None:
    sink = Sink(rank_file(tmp_path, 0))
    for event in _seeds(1 + 511):
        sink.put(event)
    assert len(_told(tmp_path)) == 1, "the first goes out at once, the next wait"
    sink.put(_seeds(1)[0])
    assert len(_told(tmp_path)) == 513 and not sink._held
    for event in _seeds(5000):
        sink.put(event)
        assert len(sink._held) < 512
    sink.close()
    assert len(_told(tmp_path)) == 5513


def test_no_event_is_held_for_longer_than_half_a_second(tmp_path: Path) -> None:
    sink = Sink(rank_file(tmp_path, 0))
    for time in (10.0, 10.1, 10.4):
        sink.put(_seeds(1, time)[0])
    assert len(_told(tmp_path)) == 1
    sink.put(_seeds(1, 10.6)[0])
    assert len(_told(tmp_path)) == 4
    sink.close()


def test_events_come_back_as_they_were(tmp_path: Path) -> None:
    given = [
        Schedule(
            schedule=0, kind='Über\n"x"\u2028\ud800', lr=(1e-45, float("inf")), metric=0.1 + 0.2, at="a b:1", time=2.5
        ),
        Seed(lib="numpy", value=1 << 80, step=7),
        Seed(lib="numpy", value=np.int64(5)),  # type: ignore[arg-type]
    ]
    sink = Sink(rank_file(tmp_path, 0))
    for event in given:
        sink.put(event)
    sink.close()
    assert list(_told(tmp_path)) == given


def test_what_is_not_a_number_comes_back(tmp_path: Path) -> None:
    sink = Sink(rank_file(tmp_path, 0))
    sink.put(Schedule(schedule=0, kind="x", metric=float("nan")))
    sink.close()
    (event,) = _told(tmp_path)
    assert isinstance(event, Schedule) and event.metric is not None and np.isnan(event.metric)


def test_threads_lose_no_event(tmp_path: Path) -> None:
    sink = Sink(rank_file(tmp_path, 0))

    def tell(first: int) -> None:
        for event in _seeds(500, first=first):
            sink.put(event)
            sink.flush()

    threads = [threading.Thread(target=tell, args=(500 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sink.close()
    told = _told(tmp_path)
    assert sorted(event.value for event in told if isinstance(event, Seed)) == list(range(2000))


def test_an_old_file_is_begun_anew(tmp_path: Path) -> None:
    rank_file(tmp_path, 0).write_text("rubbish\n")
    Sink(rank_file(tmp_path, 0)).close()
    assert _told(tmp_path) == ()


def test_values_lie_beside_the_events(tmp_path: Path) -> None:
    values = [np.arange(6.0).reshape(2, 3), np.zeros((0, 4)), np.array(3), np.ones(5, dtype=np.complex64)]
    file = TensorFile(tensor_file(tmp_path, 3), 1 << 20)
    places = [file.put(value) for value in values]
    file.close()
    for place, value in zip(places, values, strict=True):
        read = read_tensor(tmp_path, 3, place)
        assert read is not None and read.dtype == value.dtype and np.array_equal(read, value)
    assert read_tensor(tmp_path, 3, -1) is None


def test_a_full_file_takes_what_still_fits(tmp_path: Path) -> None:
    file = TensorFile(tensor_file(tmp_path, 0), 100)
    assert file.put(np.zeros(10)) == 0
    assert file.put(np.zeros(10)) == -1
    assert file.put(np.zeros(2), reserve=10) == -1
    assert file.put(np.zeros(2)) > 0
    file.close()


@pytest.mark.parametrize("kept", [0, 40, 150])
def test_a_value_that_the_rank_did_not_live_to_write(tmp_path: Path, kept: int) -> None:
    file = TensorFile(tensor_file(tmp_path, 0), 1000)
    place = file.put(np.zeros(10))
    file.close()
    path = tensor_file(tmp_path, 0)
    path.write_bytes(path.read_bytes()[:kept])
    assert read_tensor(tmp_path, 0, place) is None
