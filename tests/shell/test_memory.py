from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from omlxd.daemon import memory
from omlxd.daemon.memory import GIB, default_limit, footprint, ram_bytes

HOLDER = """
import sys
block = bytearray(int(sys.argv[1]))
block[:] = b"x" * len(block)
print("ready", flush=True)
sys.stdin.read()
"""
# Laid out by the C compiler and not by ctypes, so that a wrong field or padding shows.
LIBRARY = """
#include <errno.h>
#include <stdint.h>
struct rusage_info_v0 {
  uint8_t ri_uuid[16];
  uint64_t ri_user_time, ri_system_time, ri_pkg_idle_wkups, ri_interrupt_wkups, ri_pageins,
      ri_wired_size, ri_resident_size, ri_phys_footprint, ri_proc_start_abstime,
      ri_proc_exit_abstime;
};
int proc_pid_rusage(int pid, int flavor, void *buffer) {
  if (pid == 404) { errno = ESRCH; return -1; }
  if (pid == 403) { errno = EPERM; return -1; }
  if (flavor != 0) { errno = EINVAL; return -1; }
  struct rusage_info_v0 *info = buffer;
  *info = (struct rusage_info_v0){.ri_wired_size = 1, .ri_resident_size = 2,
      .ri_phys_footprint = 5ull * 1024 * 1024 * 1024 + pid, .ri_proc_start_abstime = 4};
  return 0;
}
"""


@pytest.fixture
def holder() -> Iterator[int]:
    """A process that holds 64 MiB."""
    command = [sys.executable, "-c", HOLDER, str(64 * 1024**2)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid


def test_footprint_of_live_processes(holder: int) -> None:
    """What a process really touched is in its figure, in bytes, and each pid has its own."""
    sizes = footprint([holder, os.getpid()])
    assert sizes.keys() == {holder, os.getpid()}
    assert 64 * 1024**2 < sizes[holder] < 128 * 1024**2


def test_gone_processes_have_no_entry(holder: int) -> None:
    """A worker that died between two looks costs nothing and raises nothing."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert footprint([process.pid, holder]).keys() == {holder}


def test_resident_size_stands_in_where_pss_is_denied(
    holder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user's process is still counted, by its resident size."""

    def denied(self: psutil.Process) -> None:
        raise psutil.AccessDenied(self.pid)

    monkeypatch.setattr(psutil.Process, "memory_full_info", denied)
    assert footprint([holder])[holder] > 64 * 1024**2


@pytest.fixture(scope="module")
def libsystem(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("lib")
    source, library = folder / "rusage.c", folder / "rusage.so"
    source.write_text(LIBRARY)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return str(library)


def test_darwin_reads_the_physical_footprint(libsystem: str) -> None:
    """The structure is read as a C compiler lays it out, beyond 32 bits too."""
    assert memory._darwin_footprint(7, libsystem) == 5 * GIB + 7


def test_darwin_tells_gone_from_refused(libsystem: str) -> None:
    """No such process is no entry; anything else is an error with its number."""
    assert memory._darwin_footprint(404, libsystem) is None
    with pytest.raises(OSError, match="proc_pid_rusage") as caught:
        memory._darwin_footprint(403, libsystem)
    assert caught.value.errno == errno.EPERM


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ram_is_the_machines() -> None:
    """Physical memory in bytes, as the kernel says it."""
    kib = next(
        line.split()[1]
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemTotal:")
    )
    assert ram_bytes() == int(kib) * 1024


@pytest.mark.parametrize(
    ("ram", "limit"), [(64 * GIB, 56 * GIB), (16 * GIB, 8 * GIB), (8 * GIB, 4 * GIB), (0, 0)]
)
def test_default_limit_leaves_eight_gib_but_takes_half(ram: int, limit: int) -> None:
    """Big machines keep 8 GiB for everything else, small ones half."""
    assert default_limit(ram) == limit
