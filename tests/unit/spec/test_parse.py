"""omlxd.spec.parse: every problem of every file at once, merging, and origins."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlxd.spec.keys import keys
from omlxd.spec.parse import Origin, Reading, Source, read
from omlxd.spec.report import OriginValue, Problem


def reading(main: str, *drop_ins: str) -> Reading:
    sources = [Source(f"{index}0.toml", text) for index, text in enumerate(drop_ins, start=1)]
    return read(Source("omlx.toml", main), sources)


def problems(main: str, *drop_ins: str) -> list[Problem]:
    return list(reading(main, *drop_ins).problems)


def only(main: str, *drop_ins: str) -> Problem:
    (problem,) = problems(main, *drop_ins)
    return problem


def test_no_text_is_the_built_in_state() -> None:
    """An empty file is valid and means the defaults."""
    result = reading("")
    assert result.problems == ()
    assert result.spec is not None
    assert result.spec.server.listen == ("127.0.0.1:8000",)


def test_all_problems_of_all_files_come_at_once() -> None:
    """One run reports syntax, unknown keys, wrong values and clashes, in file and line order."""
    main = """\
[server]
colour = 1
listen = "0.0.0.0:80"
[models.a]
aliases = ["b"]
ttl = "soon"
[models.b]
"""
    found = problems(main, "x = = 1", "[models.b]\npin = 1\n")
    assert [(p.file, p.line, p.column, p.key) for p in found] == [
        ("omlx.toml", 2, 1, "server.colour"),
        ("omlx.toml", 3, 1, "server.listen"),
        ("omlx.toml", 5, 12, 'models."a".aliases[0]'),
        ("omlx.toml", 6, 1, 'models."a".ttl'),
        ("10.toml", 1, 5, ""),
        ("20.toml", 2, 1, 'models."b".pin'),
    ]
    assert reading(main).spec is None


def test_a_wrong_value_is_reported_though_a_later_file_replaces_it() -> None:
    """Each file must be right by itself."""
    assert only('[models.a]\nttl = "x"', '[models.a]\nttl = "5m"').file == "omlx.toml"


@pytest.mark.parametrize(
    ("text", "key", "hint"),
    [
        ("[sever]", "sever", 'did you mean "server"?'),
        ("[server]\nlisten_on = 1", "server.listen_on", 'did you mean "listen"?'),
        ("[models.x]\npinned = true", 'models."x".pinned', 'did you mean "pin"?'),
        (
            "[models.x.sampling]\ntemp = 1",
            'models."x".sampling.temp',
            'did you mean "temperature"?',
        ),
        ("keep = 3", "keep", '"keep" belongs in [logging]'),
        ("[server]\nttl = 3", "server.ttl", '"ttl" belongs in [defaults] or [models."NAME"]'),
        ("[models.a.5]\npin = true", 'models."a".5', 'needs quotes: [models."a.5"]'),
        ("[server]\nzzz = 1", "server.zzz", ""),
        ("[defaults]\npath = '/x'", "defaults.path", 'set it under [models."NAME"]'),
    ],
)
def test_unknown_keys_say_what_was_meant(text: str, key: str, hint: str) -> None:
    """An unknown key names the likely one, or the table where it belongs."""
    problem = only(text)
    assert problem.key == key
    assert hint in problem.hint
    assert bool(hint) == bool(problem.hint)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[server]\nmetrics = "yes"', 'must be true or false, not "yes"'),
        ("[server]\napi_keys = 5", 'must be a list in square brackets, not "***"'),
        ("[scheduler]\nmax_queue = 1.5", "must be a whole number, not 1.5"),
        ("[scheduler]\nmax_queue = -1", "must be at least 0, not -1"),
        ("[logging]\nlevel = 'x'", 'must be "debug", "info", "warning" or "error", not "x"'),
        ("server = 3", "must be a table, not 3"),
        ("[[models]]", "must be a table, not a list"),
        ("[models.a]\nsampling = 1", "must be a table, not 1"),
        ("[models.a.sampling]\ntop_p = nan", "must be a finite number, not nan"),
        ("[models.a.sampling]\ntop_p = 0", "must be above 0, not 0"),
        ("[models.a]\nttl = 'x'", '"x": a duration is'),
        ("[cache]\ncold = '5%'", '"5%": a share such as'),
        ("[cache]\ncold_dir = ''", '"": a folder is a path'),
        ("[cache]\nblock_tokens = 8", "must be at least 16, not 8"),
        ("[hub]\nendpoint = 'https://m'", "not in this version of omlxd"),
        ("[server]\nlisten = ['127.0.0.1:1', 'x']", '"x": an address ends in a port'),
        ("[models.' a']", '" a": a model name is'),
    ],
)
def test_wrong_values_say_what_is_accepted(text: str, message: str) -> None:
    """The message has the accepted form and the value."""
    assert message in only(text).message


def test_the_element_of_a_list_is_pointed_at() -> None:
    """A wrong element has its own line and column."""
    problem = only('[server]\nlisten = [\n  "127.0.0.1:1",\n  "x",\n]')
    assert (problem.line, problem.column, problem.key) == (4, 3, "server.listen[1]")


@pytest.mark.parametrize("listed", ['"two words-secret"', "'env:9secret'"])
def test_messages_do_not_show_secrets(listed: str) -> None:
    """What stands in api_keys is not repeated."""
    problem = only(f"[server]\napi_keys = [{listed}]")
    assert "secret" not in problem.message + problem.hint


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("a = 1\nb = ", 2, 5),
        ("\ufeffa = ", 1, 5),
        ("[server]\r\nlisten = \r\n", 2, 10),
        ("a = 1\na = 2", 2, 6),
        ('a = "', 1, 6),
        ("[" * 100_000, 1, 1),
        ("a = " + "[" * 100_000, 1, 1),
        ("a = " + "9" * 5000, 1, 5005),
    ],
)
def test_syntax_errors_have_a_position(text: str, line: int, column: int) -> None:
    """What is no TOML is one problem with line and column; nothing escapes."""
    problem = only(text)
    assert problem.message.startswith("not valid TOML: ")
    assert problem.line == line
    if not text.endswith("[["):
        assert problem.column == column


def test_a_bom_and_crlf_are_no_problem() -> None:
    """Files saved by editors on Windows are read like others."""
    result = reading('\ufeff[models."x"]\r\npin = true\r\n')
    assert result.spec is not None
    assert result.spec.models["x"].pin
    assert result.origin(("models", "x", "pin")) == Origin("omlx.toml", 2, 1)


def test_an_open_port_needs_a_key() -> None:
    """An address that others reach is refused without api_keys, and both keys are named."""
    problem = only('[server]\nlisten = ["127.0.0.1:1", "0.0.0.0:2"]')
    assert "server.listen" in problem.message
    assert "server.api_keys" in problem.message
    assert (problem.line, problem.key) == (2, "server.listen")
    assert not problems('[server]\nlisten = "0.0.0.0:2"\napi_keys = ["env:KEY"]')


def test_an_open_port_and_its_key_may_be_in_two_files() -> None:
    """Rules over several keys hold for the merged state, whoever wrote them."""
    keyed, open_port = '[server]\napi_keys = ["k"]', '[server]\nlisten = "0.0.0.0:2"'
    assert not problems(keyed, open_port)
    problem = only(open_port, "[server]\napi_keys = []")
    assert problem.file == "omlx.toml"


def test_one_name_means_one_model() -> None:
    """An alias that is taken names both places."""
    twice = only('[models.a]\naliases = ["x"]', '[models.b]\naliases = ["x"]')
    assert (twice.file, twice.line, twice.key) == ("10.toml", 2, 'models."b".aliases[0]')
    assert 'models."a"' in twice.message
    assert "omlx.toml:2:12" in twice.message
    own = only('[models.a]\naliases = ["a"]')
    assert 'already the name of models."a" (omlx.toml:1:9)' in own.message


def test_later_files_win_key_by_key() -> None:
    """Tables merge deep, lists and values are replaced, in the order of the drop-ins."""
    result = reading(
        '[models.a]\naliases = ["x", "y"]\nsampling.top_k = 1\nsampling.top_p = 0.5\n',
        "[models.a]\naliases = ['z']\nsampling.top_k = 2\n",
        "[models.a]\nsampling.top_k = 3\n",
    )
    assert result.spec is not None
    model = result.spec.models["a"]
    assert model.aliases == ("z",)
    assert (model.sampling.top_k, model.sampling.top_p) == (3, 0.5)


def test_values_name_their_origin() -> None:
    """Every value in force has the file and line that set it; built-in ones have none."""
    result = reading(
        '[defaults]\nttl = "5m"\n[models.a]\npin = true\nchat_template_kwargs.x.y = 1\n',
        "[models.a]\npin = false\n",
    )
    values = {value.key: value for value in result.values()}
    assert values['models."a".pin'] == OriginValue('models."a".pin', False, "10.toml", 2)
    assert values['models."a".ttl'] == OriginValue('models."a".ttl', "5m", "omlx.toml", 2)
    assert values['models."a".chat_template_kwargs.x.y'].line == 5
    assert values["server.request_timeout"] == OriginValue("server.request_timeout", "never")
    written = {key.path for key in keys() if "*" not in key.path}
    assert len([key for key in values if not key.startswith("models")]) == len(written) + 1


def test_values_hide_literal_secrets() -> None:
    """A key that stands in the file is hidden; references are shown."""
    result = reading('[server]\napi_keys = ["sk-1", "env:KEY", "file:k"]')
    (value,) = (value for value in result.values() if value.key == "server.api_keys")
    assert value.value == ["***", "env:KEY", "file:k"]


NAMES = sorted({str(key.path[-1]) for key in keys()} | {"x", "server", "models", "sampling"})
VALUES = st.recursive(
    st.sampled_from([True, 0, -1, 1.5, "", "x", "5m", "1GB", "env:K", "127.0.0.1:1", "0.0.0.0:1"])
    | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(NAMES), VALUES), st.dictionaries(st.just("models"), VALUES))
def test_any_document_gives_a_spec_or_problems(main: Any, drop_in: Any) -> None:
    """No valid TOML makes reading fail: there is a spec, or there is a problem with a position."""
    import tomli_w

    result = reading(tomli_w.dumps(main), tomli_w.dumps(drop_in))
    assert (result.spec is None) == bool(result.problems)
    assert all(p.line >= 1 and p.column >= 1 and p.message and p.key for p in result.problems)
    if result.spec is not None:
        assert result.values()


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    """Text that is no TOML is a problem, never an exception."""
    try:
        tomllib.loads(text.removeprefix("\ufeff"))
    except ValueError:
        assert problems(text)
    else:
        assert reading(text) is not None


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        ("[mcp.servers.lab]\n", "mcp.servers.lab", "needs either command or url, and has neither"),
        (
            '[mcp.servers.lab]\ncommand = "x"\nurl = "http://h"\n',
            "mcp.servers.lab",
            "needs either command or url, and has both",
        ),
        (
            '[mcp.servers.lab]\nurl = "http://h"\nargs = ["x"]\n',
            "mcp.servers.lab.args",
            "belongs to a server with command",
        ),
        (
            '[mcp.servers.lab]\ncommand = "x"\nheaders = { A = "b" }\n',
            "mcp.servers.lab.headers",
            "belongs to a server with url",
        ),
        ('[models.a]\nmcp = ["lab"]\n', 'models."a".mcp[0]', "there are: none"),
        ('[defaults]\nmcp = ["lab"]\n', "defaults.mcp[0]", 'there is no tool server "lab"'),
    ],
)
def test_tool_servers_make_sense_together(text: str, key: str, message: str) -> None:
    """A server is started or called, and a model names servers that there are."""
    (problem,) = read(Source("omlx.toml", text)).problems
    assert problem.key == key
    assert message in problem.message


def test_an_mcp_json_may_have_the_servers_that_a_model_names() -> None:
    """What stands in another file is not known here."""
    text = '[mcp]\nconfig = "mcp.json"\n[models.a]\nmcp = ["lab"]\n'
    assert read(Source("omlx.toml", text)).problems == ()
