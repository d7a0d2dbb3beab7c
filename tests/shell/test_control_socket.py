"""The control app over a real Unix socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from omlxd import __version__
from omlxd.control.app import HANDLERS
from omlxd.control.lookup import find_model
from omlxd.control.wire import Event, RequestStatus, SettingsPatch
from omlxd.errors import BY_CODE, ModelNotFound, OmlxError, QueueFull, SpecInvalid
from omlxd.spec.report import OriginValue
from tests.fakes.fake_control import FakeControl, a_model, invalid
from tests.support.control_socket import Answer, ask, serving, short_home


@pytest.fixture
def control() -> FakeControl:
    models = a_model("org/Alpha", aliases=["first"]), a_model("Beta", pin=True, phase="ready")
    return FakeControl(*models)


@pytest.fixture
async def sock(control: FakeControl) -> AsyncIterator[Path]:
    with short_home() as home:
        path = home / "run" / "omlxd.sock"
        async with serving(control, path):
            yield path


async def stream(path: Path, target: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A streaming answer, read up to the end of its head."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    return reader, writer


async def chunk(reader: asyncio.StreamReader) -> Any:
    """The next JSON line; the server sends one a chunk."""
    size = int(await reader.readline(), 16)
    data = await reader.readexactly(size + 2)
    assert data.endswith(b"\n\r\n")
    return json.loads(data)


async def test_status_is_the_snapshot_as_json(control: FakeControl, sock: Path) -> None:
    """GET /v1/status answers the daemon's status with every field of the contract."""
    answer = (await ask(sock, "GET", "/v1/status")).json()
    assert list(answer) == [
        *("api_version", "version", "pid", "uptime_s", "generation", "observed_generation"),
        *("config", "listen", "memory", "conditions", "models"),
    ]
    assert answer["config"] == {"path": control.current.config.path, "valid": True, "problems": []}
    assert [m["id"] for m in answer["models"]] == ["org/Alpha", "Beta"]
    assert answer["models"][0]["pid"] is None


async def test_watching_sends_a_snapshot_now_and_after_every_change(
    control: FakeControl, sock: Path
) -> None:
    """GET /v1/status?watch=1 is one full snapshot a line."""
    reader, writer = await stream(sock, "/v1/status?watch=1")
    assert (await chunk(reader))["models"][0]["phase"] == "absent"
    control.set_model("org/Alpha", phase="ready")
    assert (await chunk(reader))["models"][0]["phase"] == "ready"
    writer.close()


async def test_a_watcher_that_goes_away_is_forgotten(control: FakeControl, sock: Path) -> None:
    """A closed connection ends its subscription without any change of status."""
    reader, writer = await stream(sock, "/v1/status?watch=1")
    await chunk(reader)
    writer.close()
    await asyncio.wait_for(control.unfollowed.wait(), 20)
    assert control.followers == set()


@pytest.mark.parametrize("name", ["org%2FAlpha", "org/Alpha", "Alpha", "first"])
async def test_a_model_answers_to_id_short_name_and_alias(sock: Path, name: str) -> None:
    """GET /v1/models/{id} takes the id, encoded or not, a unique short name and an alias."""
    assert (await ask(sock, "GET", f"/v1/models/{name}")).json()["id"] == "org/Alpha"


async def test_an_unknown_model_is_named_with_those_there_are(sock: Path) -> None:
    """GET /v1/models/{id} of no model is a 404 that lists the models."""
    answer = await ask(sock, "GET", "/v1/models/Gamma")
    assert answer.status == 404
    assert answer.json() == {
        "code": "model_not_found",
        "message": "no model named 'Gamma'; models: org/Alpha, Beta",
        "problems": [],
    }


def test_a_short_name_of_two_models_is_refused() -> None:
    """A short name that two ids end in is an error that names both."""
    with pytest.raises(ModelNotFound, match="a/M, b/M"):
        find_model([a_model("a/M"), a_model("b/M")], "M")


async def test_lists_are_objects(control: FakeControl, sock: Path) -> None:
    """Models and requests come in an object, so that fields can be added."""
    control.running = [RequestStatus(request_id="r1", model="Beta", api="chat", status="decode")]
    models = (await ask(sock, "GET", "/v1/models")).json()
    requests = (await ask(sock, "GET", "/v1/requests")).json()
    assert (models["api_version"], len(models["models"])) == (1, 2)
    assert requests["requests"][0]["request_id"] == "r1"


async def test_config_names_origins(control: FakeControl, sock: Path) -> None:
    """GET /v1/config gives every value in force with its file and line."""
    control.view = type(control.view)("o.toml", ["d.toml"], [OriginValue("a.b", 5, "d.toml", 3)])
    answer = (await ask(sock, "GET", "/v1/config")).json()
    assert answer == {
        "path": "o.toml",
        "drop_ins": ["d.toml"],
        "values": [{"key": "a.b", "value": 5, "file": "d.toml", "line": 3}],
    }


async def test_load_and_unload_reach_a_model_with_a_slash(control: FakeControl, sock: Path) -> None:
    """POST …/load and …/unload hand the decoded id to the daemon."""
    assert (await ask(sock, "POST", "/v1/models/org%2FAlpha/load")).status == 200
    assert control.current.models[0].phase == "loading"
    assert (await ask(sock, "POST", "/v1/models/org%2FAlpha/unload")).status == 200
    assert control.current.models[0].phase == "stopping"


async def test_settings_are_handed_over_as_toml_values(control: FakeControl, sock: Path) -> None:
    """PATCH /v1/settings keeps types and dotted keys."""
    patch = {"model": "Beta", "set": {"sampling.top_k": 5, "ttl": "5m"}, "unset": ["kind"]}
    answer = await ask(sock, "PATCH", "/v1/settings", json.dumps(patch).encode())
    assert answer.json() == {"generation": 4, "changed": True, "message": ""}
    expected = SettingsPatch("Beta", {"sampling.top_k": 5, "ttl": "5m"}, ["kind"])
    assert control.patches == [expected]


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"model": 5}', b"\xff"])
async def test_a_body_of_another_shape_is_refused(sock: Path, body: bytes) -> None:
    """A body that is not the JSON asked for is a 400 that names the route."""
    answer = await ask(sock, "PATCH", "/v1/settings", body)
    assert (answer.status, answer.json()["code"]) == (400, "invalid_request")
    assert answer.json()["message"].startswith("PATCH /v1/settings: ")


async def test_a_plan_is_a_dry_run(sock: Path) -> None:
    """POST /v1/plan answers changes and consequences of a text, or its problems."""
    good = json.dumps({"text": "[server]\n", "file": "new.toml"}).encode()
    bad = json.dumps({"text": "[", "file": "new.toml"}).encode()
    assert (await ask(sock, "POST", "/v1/plan", good)).json()["changes"][0]["key"] == "server"
    answer = (await ask(sock, "POST", "/v1/plan", bad)).json()
    assert (answer["valid"], answer["problems"][0]["file"]) == (False, "new.toml")


async def test_reload_answers_the_new_generation(sock: Path) -> None:
    """POST /v1/reload says which generation carries the files."""
    assert (await ask(sock, "POST", "/v1/reload")).json()["generation"] == 4


async def test_problems_travel_with_the_refusal(control: FakeControl, sock: Path) -> None:
    """A refused configuration is a 422 with every problem and its place."""
    control.refusal = invalid("omlx.toml")
    answer = await ask(sock, "POST", "/v1/reload")
    assert (answer.status, answer.json()["code"]) == (422, "config_invalid")
    assert answer.json()["problems"][0]["line"] == 2


async def test_every_error_keeps_its_status_and_code(control: FakeControl, sock: Path) -> None:
    """Each error of the tree answers with its own HTTP status and code."""
    for code, kind in BY_CODE.items():
        control.refusal = kind("what happened")
        answer = await ask(sock, "POST", "/v1/reload")
        assert answer.status == kind.status
        assert answer.json() == {"code": code, "message": "what happened", "problems": []}


async def test_a_bug_answers_too(control: FakeControl, sock: Path) -> None:
    """An unexpected exception is a 500 in the same shape as all others."""
    control.config_view = None  # type: ignore[assignment,method-assign]
    answer = await ask(sock, "GET", "/v1/config")
    assert (answer.status, answer.json()["code"]) == (500, OmlxError.code)


async def test_a_wait_until_next_try_is_a_header(control: FakeControl, sock: Path) -> None:
    """An error that says when to try again carries Retry-After in whole seconds."""
    control.refusal = QueueFull("full", retry_after_s=1.5)
    assert (await ask(sock, "POST", "/v1/reload")).headers["retry-after"] == "2"


@pytest.mark.parametrize("target", ["/v1/status", "/metrics", "/nowhere"])
async def test_browsers_are_refused(sock: Path, target: str) -> None:
    """A request with an Origin header is a 403, whatever it asks for."""
    answer = await ask(sock, "GET", target, headers={"Origin": "http://localhost"})
    assert (answer.status, answer.json()["code"]) == (403, "forbidden")


async def test_other_paths_and_methods_are_refused_in_the_same_shape(sock: Path) -> None:
    """No such path is a 404, a wrong method a 405, both an ErrorBody."""
    nowhere, wrong = await ask(sock, "GET", "/v2"), await ask(sock, "GET", "/v1/reload")
    assert (nowhere.status, nowhere.json()["code"]) == (404, "not_found")
    assert (wrong.status, wrong.json()["code"]) == (405, "method_not_allowed")


async def test_events_come_as_lines(control: FakeControl, sock: Path) -> None:
    """GET /v1/events is the ring, oldest first, one JSON object a line."""
    control.emit("ModelLoaded", "one")
    control.emit("ModelUnloaded", "two")
    answer = await ask(sock, "GET", "/v1/events")
    lines = [json.loads(line) for line in answer.body.splitlines()]
    assert [line["message"] for line in lines] == ["one", "two"]


async def test_following_loses_and_repeats_nothing(control: FakeControl, sock: Path) -> None:
    """GET /v1/events?follow=1 is the ring and then what comes, without a gap between."""
    control.emit("A", "past")
    reader, writer = await stream(sock, "/v1/events?follow=1")
    await control.followed.wait()
    control.emit("B", "while the past is sent")
    control.emit("C", "later")
    assert [(await chunk(reader))["seq"] for _ in range(3)] == [1, 2, 3]
    writer.close()


class BusyControl(FakeControl):
    """Events come while the ring is read: two before, two after."""

    def events(self) -> list[Event]:
        for message in ("before", "before too"):
            self.emit("B", message)
        ring = super().events()
        for message in ("after", "after too"):
            self.emit("C", message)
        return ring


async def test_events_around_the_reading_come_once() -> None:
    """What happens just before or after the ring is read is sent, and sent once."""
    control = BusyControl()
    control.emit("A", "past")
    with short_home() as home:
        path = home / "run" / "omlxd.sock"
        async with serving(control, path):
            reader, writer = await stream(path, "/v1/events?follow=1")
            seqs = [(await chunk(reader))["seq"] for _ in range(5)]
            control.emit("D", "later")
            assert [*seqs, (await chunk(reader))["seq"]] == [1, 2, 3, 4, 5, 6]
            writer.close()


async def test_a_flag_is_one_or_zero(sock: Path) -> None:
    """Another value of a flag is refused, not read as false."""
    assert (await ask(sock, "GET", "/v1/status?watch=yes")).status == 400


async def test_metrics_are_prometheus_text(sock: Path) -> None:
    """GET /metrics is what the daemon's registry prints."""
    answer = await ask(sock, "GET", "/metrics")
    assert answer.body == b"omlxd_config_generation 3.0\n"
    assert answer.headers["content-type"].startswith("text/plain; version=")


async def test_every_answer_names_the_version(sock: Path) -> None:
    """Answers and refusals alike carry the daemon's version."""
    answers: list[Answer] = [
        await ask(sock, "GET", "/v1/version"),
        await ask(sock, "GET", "/nowhere"),
        await ask(sock, "GET", "/v1/status", headers={"Origin": "x"}),
    ]
    assert [a.headers["omlxd-version"] for a in answers] == [__version__] * 3
    assert answers[0].json() == {"api_version": 1, "version": __version__}


def test_the_table_of_handlers_is_sorted() -> None:
    """Paths and methods stand in order."""
    assert list(HANDLERS) == sorted(HANDLERS)


def test_problems_are_kept_by_the_error() -> None:
    """SpecInvalid keeps its problems in order."""
    error = invalid("omlx.toml")
    assert isinstance(error, SpecInvalid)
    assert [p.key for p in error.problems] == ["tll"]
