"""The sockets that launchd listens on for us: taken over once, as descriptors.

launchd binds what `Sockets` of the plist names, before we run and while we do not, so a connection
made meanwhile waits. `launch_activate_socket` hands them over; it is in the C library of macOS and
nowhere else. Call it once for a name, before any child is started.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from collections.abc import Sequence

HTTP = "http"  # the name under Sockets in the plist

_Descriptors = ctypes.POINTER(ctypes.c_int)


class ActivationFailed(Exception):
    """launchd started us and does not give the sockets."""


def activate(name: str) -> list[socket.socket] | None:
    """The listening sockets of that name, not inheritable; None if launchd did not start us.

    An empty list: it did, and the plist has none of that name. Raises ActivationFailed.
    """
    # No file name: the symbol is in the process itself, and on macOS in no file at all.
    process = ctypes.CDLL(None)
    try:
        launch_activate_socket = process.launch_activate_socket
    except AttributeError:
        return None
    launch_activate_socket.argtypes = (
        ctypes.c_char_p,
        ctypes.POINTER(_Descriptors),
        ctypes.POINTER(ctypes.c_size_t),
    )
    launch_activate_socket.restype = ctypes.c_int
    found, count = _Descriptors(), ctypes.c_size_t()
    code = launch_activate_socket(name.encode(), ctypes.byref(found), ctypes.byref(count))
    if code == errno.ESRCH:
        return None
    if code == errno.ENOENT:
        return []
    if code:
        raise ActivationFailed(
            f"launchd does not hand over the sockets {name!r}: {os.strerror(code)}; "
            "reinstall the service with: omlxctl service install"
        )
    try:
        descriptors = [found[index] for index in range(count.value)]
    finally:
        process.free.argtypes = (ctypes.c_void_p,)  # without it the pointer is cut to an int
        process.free.restype = None
        process.free(found)
    return adopt(descriptors)


def adopt(descriptors: Sequence[int]) -> list[socket.socket]:
    """Sockets over inherited descriptors; what we start does not inherit them again."""
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    socks = [socket.socket(fileno=descriptor) for descriptor in descriptors]
    for sock in socks:
        sock.setblocking(False)
    return socks
