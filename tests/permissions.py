"""Root may read everything; a test of permissions gives that up, in a process of its own."""

import ctypes
import os

_VERSION_3 = 0x20080522
_BYPASSES = (1, 2)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


def obey_permissions() -> None:
    """From now on this process needs permissions like everybody's, for good."""
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable of capabilities 0-31, then of the others
    assert libc.capget(header, data) == 0
    for index in range(3):
        for capability in _BYPASSES:
            data[index] &= ~(1 << capability)
    assert libc.capset(header, data) == 0, os.strerror(ctypes.get_errno())
