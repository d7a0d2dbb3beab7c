"""The plist and the formula in the tree are what the code renders and needs."""

from __future__ import annotations

import plistlib
import re
from pathlib import Path

from omlxctl.serviceplist import Wanted, render, to_bytes
from omlxctl.serviceverbs import VERBS
from omlxd.spec.model import Spec

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "launchd" / "io.omlx.omlxd.plist"
PAGE = (ROOT / "launchd" / "README.md").read_text(encoding="utf-8")
FORMULA = (ROOT / "packaging" / "omlxd.rb.in").read_text(encoding="utf-8")


def test_the_example_is_what_the_code_renders() -> None:
    """Byte for byte, for the defaults of omlx.toml."""
    server = Spec().server
    program, home = Path("/opt/homebrew/opt/omlxd/bin/omlxd"), Path("/Users/you/.omlx")
    wanted = Wanted(program, home, server.listen, server.shutdown_grace)
    assert to_bytes(render(wanted)) == EXAMPLE.read_bytes()
    assert EXAMPLE.stem == render(wanted)["Label"]


def test_every_key_has_a_reason() -> None:
    """launchd/README.md explains each key of the plist, and one that is left out."""
    explained = set(re.findall(r"^\| ([A-Z]\w+) \|", PAGE, re.MULTILINE))
    assert explained == set(plistlib.loads(EXAMPLE.read_bytes())) | {"ThrottleInterval"}


def test_every_verb_is_explained() -> None:
    """And no other."""
    verbs = PAGE.partition("## Verbs")[2].partition("##")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", verbs, re.MULTILINE)) == set(VERBS)


def test_the_formulas_service_is_that_of_the_plist() -> None:
    """What a service block can say, it says as the plist does."""
    plist = plistlib.loads(EXAMPLE.read_bytes())
    block = FORMULA.partition("service do")[2].partition("\n  end")[0]
    said = dict(re.findall(r"^    (\w+) (.+)$", block, re.MULTILINE))
    assert said["run_at_load"] == str(plist["RunAtLoad"]).lower()
    (kept,) = plist["KeepAlive"].items()
    assert kept == ("SuccessfulExit", False)
    assert said["keep_alive"] == "successful_exit: false"
    assert said["stop_timeout"] == str(plist["ExitTimeOut"])
    assert said["process_type"] == f":{plist['ProcessType'].lower()}"
    (entry,) = plist["Sockets"]["http"]
    where = f"{entry['SockNodeName']}:{entry['SockServiceName']}"
    assert said["sockets"] == f'http: "tcp://{where}"'
    variables = set(re.findall(r"(\w+):", said["environment_variables"]))
    assert variables == set(plist["EnvironmentVariables"])


def test_the_formula_installs_what_there_is() -> None:
    """Every file it names is in the tree."""
    named = re.findall(r'(?:man\d|pkgshare)\.install "([^"]+)"', FORMULA)
    assert len(named) == 4
    assert [name for name in named if not (ROOT / name).is_file()] == []
