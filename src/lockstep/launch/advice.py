"""What to try next, for each way in which a rank can fail."""

from lockstep.launch.record import Failure

ONE_PROCESS = "run it with `--nproc 1` to see whether one process alone fails in the same way"

# (words in the message, lower case) -> what to do. The first that fits is taken.
_BY_WORDS = (
    (
        ("out-of-memory killer (",),
        "less memory: fewer `data.workers`, a smaller `batch.micro_batch` or fewer ranks; or a higher limit",
    ),
    (
        ("ended no process for lack of memory",),
        "look for who sent it: `kill -9`, a scheduler's limit, a guard of its own such as systemd-oomd",
    ),
    (
        ("killed by sigkill",),
        "if nobody killed it, memory ran out: fewer `data.workers`, a smaller `batch.micro_batch` or fewer ranks"
        " (the kernel's log has a line about it)",
    ),
    (
        ("device-side assert",),
        "run once with CUDA_LAUNCH_BLOCKING=1: the line is then the real one; most often a label or an index is outside"
        " its range (the same run with `--nproc 1` on a CPU names it)",
    ),
    (
        ("nccl error", "ncclsystemerror", "ncclinternalerror", "ncclremoteerror"),
        "`lockstep doctor` measures the links and looks at the interfaces; NCCL_DEBUG=INFO tells more",
    ),
    (
        ("sigbus", "shared memory", "bus error", "shm"),
        "give the machine or container more shared memory (`--shm-size`), or set `data.workers=0`",
    ),
    (
        ("outofmemory", "out of memory", "memoryerror", "can't allocate memory"),
        "less memory per step: a smaller `batch.micro_batch` keeps the global batch and the numbers",
    ),
    (
        ("sigabrt",),
        "its last words stand in its log: either the ranks' collectives differ in size or kind, or a compiled extension"
        " crashed (try `data.workers=0`, then `--nproc 1`)",
    ),
    (
        ("sigsegv", "sigfpe", "sigill"),
        "a compiled extension crashed: try `data.workers=0`, then `--nproc 1`; the stack is in the logs",
    ),
    (("dataloader worker",), "set `data.workers=0` to see the worker's own error"),
    (("left early", "os._exit"), "no rank may end by itself (`os._exit`): all ranks must take the same steps"),
    (("sys.exit",), "raise an exception instead of calling `sys.exit` in a rank, so that it says why"),
    (("sigterm", "sighup"), "something outside ended this process: a scheduler, a time limit or a person"),
)


def next_step(failure: Failure) -> str:
    """One piece of advice, short enough to be read at the end of a block."""
    if failure.kind == "interrupt":
        return ""
    if failure.kind == "consequence":
        return (
            "no rank reported a cause of its own: look for a rank that takes another path (a collective under"
            f" `if rank == 0`, fewer batches) or that was slow; {ONE_PROCESS}"
        )
    text = failure.message.lower()
    for words, advice in _BY_WORDS:
        if any(word in text for word in words):
            return advice
    return f"mend that line; {ONE_PROCESS}" if failure.where else ONE_PROCESS
