"""The value types of omlx.toml: what a key accepts, how it prints, what an editor is told.

Validators raise ValueError with a sentence that says what is accepted; nothing is coerced (a
string is not a number, 1 is not true).
"""

from __future__ import annotations

import ipaddress
import math
import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AllowInfNan,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    Strict,
    WithJsonSchema,
)

from omlxd.units import Size, format_duration, parse_duration, parse_size

Reload = Literal["live", "drain", "rebind"]

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\s*]+")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOOL_SERVER = re.compile(r"[A-Za-z0-9-]+(_[A-Za-z0-9-]+)*")
_WEB_ADDRESS = re.compile(r"https?://[^/?#\s@]+(/[^\s#]*)?")
_INT64 = range(-(1 << 63), 1 << 63)
_SIZE_PATTERN = r"^[0-9]+(\.[0-9]+)? ?([KMGTkmgt]?[Bb])?$"
_SHARE_PATTERN = r"^[0-9]+(\.[0-9]+)? ?([KMGTkmgt]?[Bb]|%)?$"
_SPAN_PATTERN = r"^(?=.)([0-9]+(\.[0-9]+)?h)?([0-9]+(\.[0-9]+)?m)?([0-9]+(\.[0-9]+)?s)?$"


def key(
    default: Any,
    reload: Reload,
    doc: str,
    *,
    built: bool = True,
    also: tuple[Any, ...] = (),
    secret: bool = False,
    **limits: Any,
) -> Any:
    """One TOML key: default (as read, not as written), reload class, one line for people, limits.

    `built=False`: this version takes only the default and the values in `also`. `secret`: literal
    values are never shown.
    """
    extra: dict[str, Any] = {"reload": reload, "built": built, "also": list(also), "secret": secret}
    return Field(default, description=doc, json_schema_extra=extra, **limits)


# ------------------------------------------------------------------ numbers, sizes, durations


def _amount(value: object) -> Size:
    size = parse_size(value)
    if size.percent is not None:
        raise ValueError('a share such as "80%" has no meaning here; write a size such as "64GB"')
    return size


def _positive_amount(value: object) -> Size:
    return _not_zero(_amount(value))


def _positive_share(value: object) -> Size:
    return _not_zero(parse_size(value))


def _limit(value: object) -> Size | Literal["auto"]:
    return "auto" if value == "auto" else _positive_share(value)


def _not_zero(size: Size) -> Size:
    if not size.bytes and not size.percent:
        raise ValueError("the size must be above 0")
    return size


def _timeout(value: object) -> float | None:
    seconds = parse_duration(value)
    if seconds == 0:
        raise ValueError('a timeout is above 0; "never" means no timeout')
    return seconds


def _span(value: object) -> float:
    seconds = parse_duration(value)
    if seconds is None:
        raise ValueError('"never" has no meaning here; a duration is "300s", "5m" or "1h"')
    return seconds


def _positive_span(value: object) -> float:
    seconds = _span(value)
    if seconds == 0:
        raise ValueError("the duration must be above 0")
    return seconds


def _steps(value: object) -> int | Literal["auto"]:
    if value == "auto":
        return "auto"
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 1 << 20:
        raise ValueError('a number of tokens from 1 to 1048576, or "auto"')
    return value


_SIZE_SCHEMA = {"type": ["string", "integer"], "pattern": _SIZE_PATTERN, "minimum": 0}
_SHARE_SCHEMA = _SIZE_SCHEMA | {"pattern": _SHARE_PATTERN}
_SPAN_SCHEMA = {"type": ["string", "number"], "pattern": _SPAN_PATTERN, "minimum": 0}


def _or(word: str, schema: dict[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [{"const": word}, schema]})


_as_text = PlainSerializer(str)
_as_duration = PlainSerializer(format_duration)

Text = Annotated[str, Strict()]
Flag = Annotated[bool, Strict()]
Whole = Annotated[int, Strict()]
Number = Annotated[float, Strict(), AllowInfNan(False)]
Texts = tuple[Text, ...]

Amount = Annotated[Size, PlainValidator(_amount), _as_text, WithJsonSchema(_SIZE_SCHEMA)]
PositiveAmount = Annotated[
    Size, PlainValidator(_positive_amount), _as_text, WithJsonSchema(_SIZE_SCHEMA)
]
Share = Annotated[Size, PlainValidator(parse_size), _as_text, WithJsonSchema(_SHARE_SCHEMA)]
PositiveShare = Annotated[
    Size, PlainValidator(_positive_share), _as_text, WithJsonSchema(_SHARE_SCHEMA)
]
Limit = Annotated[
    Size | Literal["auto"], PlainValidator(_limit), _as_text, _or("auto", _SHARE_SCHEMA)
]
Idle = Annotated[
    float | None, PlainValidator(parse_duration), _as_duration, _or("never", _SPAN_SCHEMA)
]
Timeout = Annotated[
    float | None, PlainValidator(_timeout), _as_duration, _or("never", _SPAN_SCHEMA)
]
Span = Annotated[float, PlainValidator(_span), _as_duration, WithJsonSchema(_SPAN_SCHEMA)]
PositiveSpan = Annotated[
    float, PlainValidator(_positive_span), _as_duration, WithJsonSchema(_SPAN_SCHEMA)
]
Steps = Annotated[
    int | Literal["auto"],
    PlainValidator(_steps),
    _or("auto", {"type": "integer", "minimum": 1, "maximum": 1 << 20}),
]


# ------------------------------------------------------------------ addresses, keys, names


def split_address(text: str) -> tuple[str, int]:
    """Host (IPv6 without brackets) and port of "host:port"; raises ValueError."""
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise ValueError('an address ends in a port from 1 to 65535: "127.0.0.1:8000"')
    if host.startswith("[") and host.endswith("]"):
        try:
            return str(ipaddress.IPv6Address(host[1:-1])), int(port)
        except ValueError:
            raise ValueError(f"{host} is not an IPv6 address in brackets") from None
    if ":" in host:
        raise ValueError(f'an IPv6 address stands in brackets: "[{host}]:{port}"')
    if not _HOST.fullmatch(host):
        raise ValueError(f'an address has a host: "127.0.0.1:{port}"; "0.0.0.0:{port}" is all')
    return host, int(port)


def is_loopback(address: str) -> bool:
    """Whether "host:port" can be reached from this machine only; names other than localhost count
    as reachable, since what they resolve to can change."""
    host, _ = split_address(address)
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _address(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError('an address is a string such as "127.0.0.1:8000"')
    split_address(value)
    return value


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _distinct(addresses: tuple[str, ...]) -> tuple[str, ...]:
    if not addresses:
        raise ValueError('at least one address, such as "127.0.0.1:8000"')
    if len(set(addresses)) < len(addresses):
        raise ValueError("the same address is listed twice")
    return addresses


def _api_key(value: object) -> str:
    """Never repeats the value: it may be a secret."""
    if not isinstance(value, str) or not value:
        raise ValueError('a key is a non-empty string: the key itself, "env:NAME" or "file:PATH"')
    scheme, colon, rest = value.partition(":")
    if colon and scheme == "env" and not _ENV_NAME.fullmatch(rest):
        raise ValueError('"env:NAME" needs the name of an environment variable')
    if colon and scheme == "file" and not rest.strip():
        raise ValueError('"file:PATH" needs a path')
    if scheme not in ("env", "file") and not re.fullmatch(r"[\x21-\x7e]+", value):
        raise ValueError("a key has only printable ASCII characters and no spaces")
    return value


def _secret_table(value: object) -> dict[str, str]:
    """Names no value: it may be a secret."""
    if not isinstance(value, dict):
        raise ValueError('must be a table, such as { TOKEN = "env:TOKEN" }')
    for name, text in value.items():
        if not name or not isinstance(text, str) or "\0" in text or "\n" in text:
            raise ValueError(f"{name or 'a name'}: a value is a string of one line")
    return value


def _program(value: object) -> str:
    """Nothing is ever looked for in the folder that omlxd happens to run in."""
    if not isinstance(value, str) or "\0" in value:
        raise ValueError('a program is a name such as "npx", or a path')
    if "/" in value and not value.startswith(("/", "~/")):
        raise ValueError('a program\'s path begins with "/" or "~/"')
    return value


def _web_address(value: object) -> str:
    if not isinstance(value, str) or (value and not _WEB_ADDRESS.fullmatch(value)):
        raise ValueError('an address is "https://HOST/PATH"; secrets belong in headers')
    return value


def _tool_server_name(value: object) -> str:
    """It stands before `__` in the names of the server's tools."""
    if not isinstance(value, str) or not _TOOL_SERVER.fullmatch(value):
        raise ValueError("the name of a tool server has letters, digits, - and single _")
    return value


def _origin(value: object) -> str:
    if not isinstance(value, str) or not _ORIGIN.fullmatch(value):
        raise ValueError('an origin is scheme, host and port only: "http://localhost:3000"')
    return value


def _name(value: object) -> str:
    """A model id or alias: it is sent by clients and stands in URLs and paths."""
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ValueError("a model name is a non-empty string of printable characters")
    if value != value.strip() or any(part in ("", ".", "..") for part in value.split("/")):
        raise ValueError('a model name is a folder name or "org/name", without empty or dot parts')
    return value


def _folder(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError('a folder is a path such as "cache" or "/Volumes/fast/omlxd"')
    return value


def _json_table(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("must be a table, such as { enable_thinking = false }")
    _check_json(value)
    return value


def _check_json(value: object) -> None:
    match value:
        case dict():
            for item in value.values():
                _check_json(item)
        case list():
            for item in value:
                _check_json(item)
        case str() | bool():
            return
        case int() if value in _INT64:
            return
        case float() if math.isfinite(value):
            return
        case _:
            raise ValueError(f"a template takes no dates, no inf and no nan, so not {value}")


_string = WithJsonSchema({"type": "string", "minLength": 1})
Address = Annotated[str, PlainValidator(_address), _string]
Listen = Annotated[
    tuple[Address, ...],
    BeforeValidator(_listed),
    AfterValidator(_distinct),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": True},
            ]
        }
    ),
]
ApiKey = Annotated[str, PlainValidator(_api_key), _string]
Origin = Annotated[str, PlainValidator(_origin), _string]
Name = Annotated[str, PlainValidator(_name), _string]
Folder = Annotated[str, PlainValidator(_folder), _string]
ToolServerName = Annotated[str, PlainValidator(_tool_server_name), _string]
Program = Annotated[str, PlainValidator(_program), WithJsonSchema({"type": "string"})]
WebAddress = Annotated[str, PlainValidator(_web_address), WithJsonSchema({"type": "string"})]
SecretTable = Annotated[
    dict[str, str],
    PlainValidator(_secret_table),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "string"}}),
]
JsonTable = Annotated[
    dict[str, Any], PlainValidator(_json_table), WithJsonSchema({"type": "object"})
]
