from lockstep.launch.stacks import Frame, Thread
from lockstep.launch.stacks.handler import parse

DUMP = """Thread 0x00007f01 (most recent call first):
  File "/py/threading.py", line 327 in wait
  File "/py/threading.py", line 1002 in _bootstrap

Current thread 0x00007f02 [MainThread] (most recent call first):
  File "/home/me/a file, line 3.py", line 88 in load_image
  File "/home/me/data.py", line ??? in __getitem__
  File "/py/multiprocessing/process.py", line 314 in _bootstrap
  File "/home/me/train.py", line 5 in <module>
  ...
"""


def test_a_dump_is_read() -> None:
    assert parse(DUMP, "7f02") == (
        Thread(
            "MainThread",
            True,
            (Frame("/home/me/a file, line 3.py", 88, "load_image"), Frame("/home/me/data.py", 0, "__getitem__")),
        ),
        Thread("", False, (Frame("/py/threading.py", 327, "wait"), Frame("/py/threading.py", 1002, "_bootstrap"))),
    )


def test_half_a_dump_is_read_as_far_as_it_goes() -> None:
    (thread,) = parse('Thread 0x01 (most recent call first):\n  File "/a.py", line 3 in f\n  File "/b.p', "1")
    assert thread.frames == (Frame("/a.py", 3, "f"),)
    assert parse("", "1") == ()
