"""What `omlxctl status` prints."""

from __future__ import annotations

import click
import pytest

from omlxctl.statusview import is_trouble, model_lines, model_rows, status_lines
from omlxd.control.wire import Condition, ConfigStatus, MemoryStatus
from omlxd.spec.report import Problem
from tests.fakes.fake_control import TIME, a_model, a_status


def plain(lines: list[str]) -> list[str]:
    return [click.unstyle(line) for line in lines]


def condition(kind: str, status: str, reason: str = "Because", message: str = "why") -> Condition:
    return Condition(kind, status, reason, message, TIME)  # type: ignore[arg-type]


def test_a_healthy_daemon_is_four_lines_and_a_table() -> None:
    """The head names version, pid, uptime, listeners, file and memory; then the models."""
    loaded = a_model(
        "org/Alpha",
        phase="ready",
        pid=4300,
        footprint_bytes=3 << 29,
        max_context=32768,
        running=2,
        ttl_s=1800.0,
        expires_in_s=600.0,
    )
    pinned = a_model("Beta", phase="loading", pin=True, waiting=1, reason="no room")
    status = a_status(
        loaded, pinned, memory=MemoryStatus(8 << 30, 3 << 29, 1 << 20), version="0.1.0"
    )
    assert plain(status_lines(status)) == [
        "omlxd 0.1.0  pid 4242  up 12s  generation 3",
        "listen  127.0.0.1:8000",
        "config  /home/you/.omlx/omlx.toml  valid",
        "memory  1.5GB of 8GB  hot 1MB  cold 0B",
        "",
        "MODEL      KIND  PHASE    PIN  SIZE   CONTEXT  RUN  WAIT  TTL  EXPIRES  PID   REASON",
        "org/Alpha  llm   ready    -    1.5GB  32768    2    0     30m  10m      4300  -",
        "Beta       llm   loading  pin  -      -        0    1     -    -        -     no room",
    ]


def test_an_invalid_configuration_is_in_the_first_lines() -> None:
    """Problems stand with file, line and column; what goes on is said."""
    problem = Problem("omlx.toml", 3, 1, "tll", "unknown key", 'did you mean "ttl"?')
    lines = plain(status_lines(a_status(config=ConfigStatus("omlx.toml", False, [problem]))))
    assert lines[2:5] == [
        "config  omlx.toml  INVALID, the last good state stays in force",
        "  omlx.toml:3:1: unknown key",
        '      did you mean "ttl"?',
    ]
    assert lines[-1] == "no models"


def test_a_generation_not_yet_in_force_is_shown() -> None:
    """Two numbers where the accepted spec is ahead of what runs."""
    head = status_lines(a_status(generation=4, observed_generation=3))[0]
    assert head.endswith("generation 4 (3 in force)")


def test_only_what_is_amiss_is_shown() -> None:
    """Conditions as they should be stay out of the way."""
    status = a_status(
        conditions=[
            condition("Ready", "True"),
            condition("ListenDrift", "False"),
            condition("Reconciled", "False", "Waiting", "Beta waits"),
            condition("MemoryPressure", "True", "AboveLimit", "9GB of 8GB"),
        ]
    )
    shown = [line for line in plain(status_lines(status)) if line.startswith("!")]
    assert shown == [
        "! Reconciled=False  Waiting: Beta waits",
        "! MemoryPressure=True  AboveLimit: 9GB of 8GB",
    ]


@pytest.mark.parametrize(
    ("kind", "status", "trouble"),
    [
        ("Ready", "True", False),
        ("Ready", "False", True),
        ("Ready", "Unknown", True),
        ("CrashLoop", "True", True),
        ("CrashLoop", "False", False),
        ("CrashLoop", "Unknown", True),
        ("ColdTier", "True", False),
        ("ColdTier", "False", True),
        ("ColdTier", "Unknown", False),
    ],
)
def test_polarity_of_conditions(kind: str, status: str, trouble: bool) -> None:
    """Some conditions should be True and some False; Unknown is fine for what may be off."""
    assert is_trouble(condition(kind, status)) is trouble


def test_a_model_that_never_leaves_says_never() -> None:
    """No ttl is "never"; a pinned model has none to show."""
    never, pinned = model_rows([a_model("A"), a_model("B", pin=True)])[1:]
    assert (never.split()[8], pinned.split()[8]) == ("never", "-")


def test_a_running_model_shows_what_is_amiss_in_words() -> None:
    """The message of the first condition amiss stands there; its code where there is no message."""
    told = [condition("Ready", "True"), condition("UpToDate", "False", "Pending", "it is replaced")]
    mute = [condition("ColdTier", "False", "Degraded", "")]
    rows = model_rows(
        [a_model(n, phase="ready", conditions=c) for n, c in (("A", told), ("B", mute))]
    )[1:]
    assert (rows[0][-14:], rows[1].split()[-1]) == ("it is replaced", "Degraded")


def test_a_healthy_model_has_no_reason() -> None:
    """What a model cannot do by its nature, and what its phase says already, is no trouble."""
    nature = [
        condition("Batching", "False", "OneAtATime"),
        condition("PrefixReuse", "False", "NotRestorable"),
    ]
    loading = [condition("Ready", "False", "Loading", "")]
    rows = model_rows(
        [
            a_model("A", phase="ready", conditions=nature),
            a_model("B", phase="loading", conditions=loading),
            a_model("C", conditions=nature),
        ]
    )[1:]
    assert [row.split()[-1] for row in rows] == ["-", "-", "-"]


def test_a_condition_without_a_message_ends_with_its_code() -> None:
    """No colon stands before nothing."""
    status = a_status(conditions=[condition("Reconciled", "False", "Converging", "")])
    assert "! Reconciled=False  Converging" in plain(status_lines(status))


def test_names_cannot_steer_the_terminal() -> None:
    """An escape sequence in a name, a path or a message is shown as one, in every view."""
    name = "M\x1b[2J"
    model = a_model(name, path=f"/m/{name}", conditions=[condition("Ready", "False", "No", name)])
    status = a_status(
        model,
        listen=[name],
        config=ConfigStatus(name, False, [Problem(name, 0, 0, "", name, name)]),
        conditions=[condition("Ready", "False", "No", name)],
    )
    shown = "".join(plain([*status_lines(status), *model_lines(model)]))
    assert shown.isprintable()
    assert shown.count("M\\x1b[2J") == 10


def test_one_model_with_all_that_is_known() -> None:
    """Facts line by line, then its conditions."""
    model = a_model(
        "A",
        aliases=["a", "b"],
        path="/m/A",
        ttl_s=60.0,
        idle_s=4.0,
        conditions=[condition("Ready", "False", "NotWanted", "")],
    )
    assert plain(model_lines(model)) == [
        "A",
        "  kind      llm",
        "  phase     absent",
        "  reason    -",
        "  pinned    no",
        "  aliases   a, b",
        "  path      /m/A",
        "  pid       -",
        "  memory    -",
        "  weights   -",
        "  context   -",
        "  running   0",
        "  waiting   0",
        "  ttl       1m",
        "  idle      4s",
        "  expires   -",
        "  restarts  0",
        "",
        "CONDITION  STATUS  REASON     MESSAGE",
        "Ready      False   NotWanted  -",
    ]


def test_size_is_memory_or_weights() -> None:
    """A loaded model shows what it takes, another one what its weights are."""
    loaded = a_model("A", phase="ready", footprint_bytes=2 << 30, weights_bytes=1 << 30)
    absent = a_model("B", weights_bytes=1 << 30)
    rows = plain(model_rows([loaded, absent]))
    assert [row.split()[4] for row in rows] == ["SIZE", "2GB", "1GB"]
