"""Asking a program of the system, where there is one."""

import subprocess


def output(*command: str, timeout_s: float = 10.0) -> str | None:
    """What a program prints; None where it is absent, fails or hangs. A driver that hangs must not hang us."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False, errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
