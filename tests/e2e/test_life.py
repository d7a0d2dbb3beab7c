"""Start, stop, one instance per home, broken and missing files."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.support.daemon import TIMEOUT_S, Daemon, config, free_port

pytestmark = pytest.mark.e2e


def test_ready_and_stop(home: Path, tmp_path: Path) -> None:
    """A daemon without models is ready, answers on both sockets and exits 0 on SIGTERM."""
    with Daemon(home, config(tmp_path)) as daemon:
        url = daemon.until_listening()
        assert httpx.get(f"{url}/healthz").status_code == 200
        assert httpx.get(f"{url}/readyz").status_code == 200
        assert daemon.status()["config"]["valid"] is True
        assert daemon.stop() == 0
        assert not (home / "run" / "omlxd.sock").exists()
        assert [line["type"] for line in daemon.log("shutdown")] == ["shutdown", "shutdown"]


def test_imports(home: Path) -> None:
    """The control plane never imports MLX, and loads the heavy libraries only when needed."""
    program = (
        "import sys, omlxd.daemon.daemon; "
        "print([m for m in ('mlx', 'mlx_lm', 'transformers', 'mcp', 'huggingface_hub') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_second_instance(home: Path, tmp_path: Path) -> None:
    """A second daemon on the same home exits 4 and names the first one's pid."""
    with Daemon(home, config(tmp_path)) as daemon:
        command = [sys.executable, "-m", "omlxd", "--home", str(home)]
        second = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert second.returncode == 4
        assert str(daemon.pid) in second.stderr
        assert daemon.status()["pid"] == daemon.pid


def test_check(home: Path, tmp_path: Path) -> None:
    """`--check` prints every problem with its place and exits 1, or exits 0, and starts nothing."""
    command = [sys.executable, "-m", "omlxd", "--home", str(home), "--check"]
    (home / "omlx.toml").write_text('[server]\nlisten = 7\n[memory]\nmax_proces_memory = "1GB"\n')
    bad = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert bad.returncode == 1
    assert "omlx.toml:2:1" in bad.stderr
    assert "max_process_memory" in bad.stderr
    (home / "omlx.toml").write_text(config(tmp_path))
    good = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert good.returncode == 0, good.stderr
    (home / "omlx.toml").unlink()
    none = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert (none.returncode, none.stdout) == (
        0,
        f"{home}/omlx.toml: there is no such file, the defaults hold\n",
    )
    assert not (home / "run").exists()


def test_taken_port(home: Path, tmp_path: Path) -> None:
    """A taken port is a condition, and the daemon binds it by itself once it is free."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        daemon = Daemon(home, config(tmp_path, port=port)).start()
        with daemon.snapshots() as stream:
            for status in stream:
                found = {c["type"]: c for c in status["conditions"]}
                if found.get("Listening", {}).get("status") == "False":
                    break
        assert str(port) in found["Listening"]["message"]
    try:
        assert daemon.until_listening() == f"http://127.0.0.1:{port}"
    finally:
        daemon.stop()


def test_broken_file_at_start(home: Path, tiny_models: Path) -> None:
    """With a broken file the daemon starts on its last good state and recovers when mended."""
    good = config(tiny_models, body='[models."tiny-llama"]\naliases = ["little"]\n')
    with Daemon(home, good) as daemon:
        daemon.until(lambda s: any(m["aliases"] for m in s["models"]), "the alias")
        daemon.stop()
        daemon.save(good + "\nnonsense = = 1\n")
        daemon.start()
        status = daemon.until(
            lambda s: any(m["aliases"] for m in s["models"]), "the last good state"
        )
        assert status["config"]["valid"] is False
        problem = status["config"]["problems"][0]
        assert problem["line"] == len(good.splitlines()) + 2
        daemon.save(good)
        daemon.until(lambda s: s["config"]["valid"], "the mended file")


def test_broken_file_without_last_good(home: Path, tmp_path: Path) -> None:
    """A first start on a broken file comes up with its control socket and nothing else."""
    with Daemon(home, "not toml at all") as daemon:
        status = daemon.status()
        assert status["models"] == []
        assert status["listen"] == []
        assert status["config"]["problems"]
        daemon.save(config(tmp_path))
        daemon.until_listening()


def test_sighup(home: Path, tmp_path: Path) -> None:
    """SIGHUP reads the files again and ends nothing."""
    with Daemon(home, config(tmp_path)) as daemon:
        daemon.until_generation(1)
        daemon.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
        daemon.save(config(tmp_path, port=free_port()))
        daemon.until_generation(2)
        assert daemon.process.poll() is None  # type: ignore[union-attr]


def test_model_folder_appears(home: Path, tiny_models: Path, tmp_path: Path) -> None:
    """A declared model without a folder is listed with the reason and served once it is there."""
    folder = tmp_path / "later"
    with Daemon(home, config(folder, body='[models."tiny-llama"]\npin = true\n')) as daemon:
        status = daemon.until(
            lambda s: any(
                c["type"] == "ModelFolders" and c["status"] == "False" for c in s["conditions"]
            ),
            "a missing folder is reported",
        )
        entry = status["models"][0]
        assert entry["id"] == "tiny-llama"
        assert entry["phase"] == "absent"
        assert entry["servable"] is False
        folder.mkdir()
        (folder / "tiny-llama").symlink_to(tiny_models / "tiny-llama")
        daemon.until_phase("tiny-llama", "ready")
