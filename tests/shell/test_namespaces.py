"""Which model a namespace is of, across restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from omlxd.daemon.namespaces import NamespaceNames


def test_what_was_learnt_is_known_after_a_restart(tmp_path: Path) -> None:
    """A model that is not loaded is still known by its files; several may be of one model."""
    path = tmp_path / "state" / "namespaces.json"
    names = NamespaceNames(path)
    names.learn({"n1": "a"})
    names.learn({"n2": "a", "n3": "b"})
    again = NamespaceNames(path)
    assert again.model_of == {"n1": "a", "n2": "a", "n3": "b"}
    assert again.of_model("a") == {"n1", "n2"}
    assert again.of_model("c") == frozenset()


def test_what_is_gone_is_forgotten(tmp_path: Path) -> None:
    """Names of files that are no more do not pile up."""
    path = tmp_path / "namespaces.json"
    names = NamespaceNames(path)
    names.learn({"n1": "a", "n2": "a"})
    names.forget({"n2", "of nobody known"})
    assert NamespaceNames(path).model_of == {"n2": "a"}


def test_nothing_new_is_not_written(tmp_path: Path) -> None:
    """It is asked after every pass of the controller."""
    path = tmp_path / "namespaces.json"
    names = NamespaceNames(path)
    names.learn({"n1": "a"})
    path.unlink()
    names.learn({"n1": "a"})
    names.forget({"n1"})
    assert not path.exists()


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff"])
def test_a_broken_file_costs_names_only(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is told, and written anew with the next name."""
    path = tmp_path / "namespaces.json"
    path.write_bytes(content)
    names = NamespaceNames(path)
    assert "namespaces_not_read" in capsys.readouterr().err
    names.learn({"n1": "a"})
    assert NamespaceNames(path).model_of == {"n1": "a"}


def test_a_file_that_cannot_be_written_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The names are known all the same, until the daemon ends."""
    (tmp_path / "state").write_text("in the way")
    names = NamespaceNames(tmp_path / "state" / "namespaces.json")
    names.learn({"n1": "a"})
    assert "namespaces_not_saved" in capsys.readouterr().err
    assert names.model_of == {"n1": "a"}
