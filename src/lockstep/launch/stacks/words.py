"""A stack in words."""

import linecache
import re
from collections.abc import Sequence

from lockstep.launch.frames import is_users, spot_of
from lockstep.launch.stacks.stack import Frame, Stack, users_frames
from lockstep.launch.stacks.workers import at_work, is_worker

_COLLECTIVES = re.compile(
    r"(all_reduce|all_gather|reduce_scatter|broadcast|barrier|monitored_barrier|reduce|gather|scatter|all_to_all"
    r"|send|recv|batch_isend_irecv|send_object_list|recv_object_list)(_\w+)?"
)

# (end of the file's path, function or None for any) -> words. Looked at from the innermost frame outward, as far as
# the frames are not the user's; the one that is furthest out wins: it is what the user called.
_LIBRARY: tuple[tuple[str, str | None, str], ...] = (
    ("torch/distributed/distributed_c10d.py", "init_process_group", "waits for the other ranks in init_process_group"),
    ("torch/distributed/distributed_c10d.py", "new_group", "waits for the other ranks in new_group"),
    ("torch/distributed/distributed_c10d.py", "destroy_process_group", "takes the process group down"),
    ("torch/distributed/rendezvous.py", None, "waits for the other ranks to join"),
    ("torch/nn/parallel/distributed.py", "__init__", "builds DistributedDataParallel (all ranks have to)"),
    ("torch/autograd/graph.py", "_engine_run_backward", "is in backward"),
    ("torch/utils/data/dataloader.py", "_try_get_data", "waits for a batch from its DataLoader workers"),
    ("torch/utils/data/dataloader.py", "_shutdown_workers", "waits for its DataLoader workers to end"),
    ("torch/utils/data/dataloader.py", "_get_iterator", "starts its DataLoader workers"),
    ("torch/cuda/__init__.py", "synchronize", "waits for the GPU (torch.cuda.synchronize)"),
    ("torch/cuda/streams.py", "synchronize", "waits for the GPU (a stream or an event)"),
    ("torch/serialization.py", "save", "writes a file (torch.save)"),
    ("torch/serialization.py", "load", "reads a file (torch.load)"),
    ("multiprocessing/queues.py", "get", "waits in queue.get"),
    ("multiprocessing/queues.py", "put", "waits in queue.put"),
    ("multiprocessing/popen_fork.py", "wait", "waits for a child process"),
    ("multiprocessing/connection.py", None, "waits for another process (multiprocessing)"),
    ("/queue.py", "get", "waits in queue.get"),
    ("/queue.py", "put", "waits in queue.put"),
    ("/subprocess.py", None, "waits for a program that it has started (subprocess)"),
    ("/threading.py", "join", "waits for a thread (join)"),
    ("/threading.py", "wait", "waits in threading (a lock, event or condition)"),
    ("/threading.py", "__enter__", "waits for a lock"),
    ("/socket.py", None, "waits for the network"),
    ("/ssl.py", None, "waits for the network"),
    ("/selectors.py", None, "waits for input or the network"),
)
_COMPILES = ("torch/_inductor/", "torch/_dynamo/")

# What stands in the line of the innermost frame, where that calls into C: such calls have no frame of their own.
_LINE: tuple[tuple[str, str], ...] = (
    (r"\bsleep\(", "sleeps (time.sleep)"),
    (r"\.acquire\(", "waits for a lock (acquire)"),
    (r"^\s*(async )?with\b.*lock", "waits for a lock (with)"),
    (r"\binput\(", "waits for input from the keyboard"),
    (r"\.(item|tolist|cpu|numpy)\(", "reads a value of a tensor (on a GPU this waits for all work before it)"),
    (r"\.wait\(", "waits (wait)"),
    (r"\.join\(\s*\)", "waits (join)"),
    (r"\bflock\(|\blockf\(", "waits for a lock on a file"),
    (r"\bos\.(wait|waitpid)\(", "waits for a child process"),
)


def spot(stack: Stack) -> str:
    """The user's innermost frame of the main thread as `file:line in function`, else its innermost of all, else ""."""
    frames = users_frames(stack) or stack.main
    return spot_of(frames[0].file, frames[0].line, frames[0].function) if frames else ""


def doing(stack: Stack) -> str:
    """What the main thread does, as the end of a sentence that begins with the rank: "waits in all_reduce".

    "" where the stack could not be read or has no main thread.
    """
    frames = stack.main
    if not frames:
        return ""
    if is_worker(stack) and not at_work(stack):
        return "waits for work"
    library = _before_the_users(frames)
    for say in (_collective, _compiling, _known):
        if words := say(library):
            return words
    line = linecache.getline(frames[0].file, frames[0].line)
    for pattern, words in _LINE:
        if re.search(pattern, line):
            return words
    if library:
        return f"{'waits in' if stack.busy is False else 'runs'} {frames[0].function}"
    # A loop of the user's and a call into C that is not known look the same, but for the processor.
    return "waits in a call of that line" if stack.busy is False else "computes or loops"


def _before_the_users(frames: Sequence[Frame]) -> list[Frame]:
    library: list[Frame] = []
    for frame in frames:
        if is_users(frame.file):
            break
        library.append(frame)
    return library


def _collective(library: Sequence[Frame]) -> str:
    calls = [
        frame.function
        for frame in library
        if frame.file.endswith("torch/distributed/distributed_c10d.py") and _COLLECTIVES.fullmatch(frame.function)
    ]
    return f"waits in {calls[-1]}" if calls else ""


def _compiling(library: Sequence[Frame]) -> str:
    return "compiles (torch.compile)" if any(part in one.file for one in library for part in _COMPILES) else ""


def _known(library: Sequence[Frame]) -> str:
    for frame in reversed(library):
        for file, function, words in _LIBRARY:
            if frame.file.endswith(file) and function in (None, frame.function):
                return words
    return ""
