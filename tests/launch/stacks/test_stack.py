from lockstep.launch.stacks.stack import Frame, Stack, Thread, own_life, plain_name


def test_the_parents_life_is_left_out() -> None:
    mine, start = Frame("/me/data.py", 3, "load"), Frame("/py/multiprocessing/process.py", 314, "_bootstrap")
    assert own_life([mine, start, Frame("/me/train.py", 9, "main")]) == (mine,)
    thread = Frame("/py/threading.py", 1002, "_bootstrap")
    assert own_life([mine, thread]) == (mine, thread)


def test_names_are_those_of_tracebacks() -> None:
    names = ["load", "Images.__getitem__", "f.<locals>.<listcomp>", "<module>"]
    assert [plain_name(name) for name in names] == ["load", "__getitem__", "<listcomp>", "<module>"]


def test_a_stack_without_a_main_thread_has_no_main_frames() -> None:
    assert Stack(7, (Thread("", False, (Frame("/a.py", 1, "f"),)),), "py-spy").main == ()
