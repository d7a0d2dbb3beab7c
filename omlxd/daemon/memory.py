"""How much memory processes take, as the system that may kill them counts it.

macOS: `ri_phys_footprint`, which Activity Monitor and jetsam go by. Linux: the proportional set
size, so that pages shared between workers (libraries, mapped weights) count once.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Iterable

import psutil

GIB = 1024**3

_RUSAGE_INFO_V0 = 0
_LIBSYSTEM = "/usr/lib/libSystem.B.dylib"


def footprint(pids: Iterable[int]) -> dict[int, int]:
    """Bytes per process; processes that are gone have no entry."""
    sizes = {}
    for pid in pids:
        size = _darwin_footprint(pid) if sys.platform == "darwin" else _linux_footprint(pid)
        if size is not None:
            sizes[pid] = size
    return sizes


def ram_bytes() -> int:
    """Physical memory of this machine."""
    return int(psutil.virtual_memory().total)


def default_limit(ram: int) -> int:
    """What `max_process_memory = "auto"` means, in bytes: 8 GiB less, at least half."""
    return max(ram - 8 * GIB, ram // 2)


# ------------------------------------------------------------------ Linux


def _linux_footprint(pid: int) -> int | None:
    try:
        process = psutil.Process(pid)
        try:
            return int(process.memory_full_info().pss)
        except psutil.AccessDenied:  # another user's, or a kernel that hides it
            return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return None


# ------------------------------------------------------------------ macOS


class RusageInfoV0(ctypes.Structure):
    """`struct rusage_info_v0` of <sys/resource.h>."""

    _fields_ = (
        ("ri_uuid", ctypes.c_uint8 * 16),
        ("ri_user_time", ctypes.c_uint64),
        ("ri_system_time", ctypes.c_uint64),
        ("ri_pkg_idle_wkups", ctypes.c_uint64),
        ("ri_interrupt_wkups", ctypes.c_uint64),
        ("ri_pageins", ctypes.c_uint64),
        ("ri_wired_size", ctypes.c_uint64),
        ("ri_resident_size", ctypes.c_uint64),
        ("ri_phys_footprint", ctypes.c_uint64),
        ("ri_proc_start_abstime", ctypes.c_uint64),
        ("ri_proc_exit_abstime", ctypes.c_uint64),
    )


def _darwin_footprint(pid: int, library: str = _LIBSYSTEM) -> int | None:
    lib = ctypes.CDLL(library, use_errno=True)
    info = RusageInfoV0()
    if lib.proc_pid_rusage(ctypes.c_int(pid), ctypes.c_int(_RUSAGE_INFO_V0), ctypes.byref(info)):
        number = ctypes.get_errno()
        if number == errno.ESRCH:
            return None
        raise OSError(number, f"proc_pid_rusage({pid}): {os.strerror(number)}")
    return int(info.ri_phys_footprint)
