from __future__ import annotations

import pytest

from omlxd.daemon.worker_environment import worker_environment

DEBIAN = "/usr/lib/x86_64-linux-gnu/libopenblas.so.0"
PTHREAD = "/usr/lib/aarch64-linux-gnu/openblas-pthread/libopenblas.so.0"


def made(
    environ: dict[str, str], *, platform: str = "linux", files: tuple[str, ...] = (DEBIAN,)
) -> dict[str, str]:
    return worker_environment(platform, environ, files.__contains__, physical_cores=6)


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_every_worker_is_offline_and_unbuffered(platform: str) -> None:
    """What the user set otherwise is overruled, the rest of the environment is kept."""
    environ = {"HF_HUB_OFFLINE": "0", "HOME": "/home/u"}
    env = made(environ, platform=platform)
    assert env["PYTHONUNBUFFERED"] == env["HF_HUB_OFFLINE"] == "1"
    assert env["TOKENIZERS_PARALLELISM"] == "false"
    assert env["HOME"] == "/home/u"
    assert environ == {"HF_HUB_OFFLINE": "0", "HOME": "/home/u"}


def test_openblas_is_preloaded_where_it_is() -> None:
    """The build with its own threads is preferred to the system's choice."""
    assert made({})["LD_PRELOAD"] == DEBIAN
    assert made({}, files=(DEBIAN, PTHREAD))["LD_PRELOAD"] == PTHREAD
    assert "LD_PRELOAD" not in made({}, files=())


@pytest.mark.parametrize("value", ["", "/lib/libjemalloc.so.2"])
def test_a_set_preload_stays(value: str) -> None:
    """An LD_PRELOAD of the user's is not touched, an empty one is a way to say no."""
    assert made({"LD_PRELOAD": value})["LD_PRELOAD"] == value


def test_threads_are_physical_cores_unless_set() -> None:
    """Either variable that OpenBLAS goes by is left as the user set it."""
    assert made({})["OPENBLAS_NUM_THREADS"] == "6"
    assert made({"OPENBLAS_NUM_THREADS": "2"})["OPENBLAS_NUM_THREADS"] == "2"
    assert "OPENBLAS_NUM_THREADS" not in made({"OMP_NUM_THREADS": "3"})


def test_macos_gets_no_preload() -> None:
    """Metal needs no BLAS, and macOS no LD_PRELOAD."""
    assert made({}, platform="darwin").keys() == {
        "PYTHONUNBUFFERED",
        "HF_HUB_OFFLINE",
        "TOKENIZERS_PARALLELISM",
    }
