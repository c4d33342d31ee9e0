"""A function in a process of its own, forked from the server that has imported torch: it may launch ranks itself."""

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.ranks import PRELOAD


def apart(function: Callable[..., Any], *args: Any, folder: Path, timeout_s: float = 240) -> Any:
    """What `function(*args)` returns; both pickle. It runs in `folder`, and prints into a file there."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_main, args=(send, str(folder), function, args))
    process.start()
    send.close()
    try:
        assert receive.poll(timeout_s), f"nothing after {timeout_s} s"
        return receive.recv()
    except EOFError:
        raise AssertionError((folder / "said.txt").read_text()) from None
    finally:
        receive.close()
        process.join(10)
        if process.exitcode is None:
            process.kill()
            process.join()
        process.close()


def _main(send: Connection, folder: str, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    os.chdir(folder)
    file = os.open("said.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.close(file)
    send.send(function(*args))
    send.close()
