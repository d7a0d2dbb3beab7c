"""Where a picture comes from, read from what clients send for one. Nothing is fetched here."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, unquote_to_bytes

from omlxd.errors import RequestInvalid

MAX_PICTURE_BYTES = 20 * 2**20  # as sent, before it is decoded
MAX_URL_CHARACTERS = 8192  # of one that points somewhere
_CHARACTERS_PER_3_BYTES = 4
_WAYS = "a data: URI, or an http(s): or file: URL"


@dataclass(frozen=True, slots=True)
class Inline:
    data: bytes


@dataclass(frozen=True, slots=True)
class Remote:
    """An http or https URL, as it was sent."""

    url: str


@dataclass(frozen=True, slots=True)
class LocalFile:
    """An absolute path of this machine."""

    path: str


Source = Inline | Remote | LocalFile


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture of a request. `where` names its place in the body."""

    where: str
    source: Source


def source_of(part: Mapping[str, Any], where: str) -> Source:
    """Of a part or block that stands for a picture, in any dialect. Raises RequestInvalid.

    The URL is in `image_url` or `image` (itself, or as its `url`) or in `url`; Anthropic's
    `source` has a type of its own.
    """
    if isinstance(source := part.get("source"), Mapping):
        return _of_block(source, where)
    for key in ("image_url", "image", "url"):
        value = part.get(key)
        if isinstance(value, Mapping):
            value = value.get("url")
        if isinstance(value, str):
            return source_of_url(value, where)
    if part.get("file_id") is not None:
        raise _nothing_stored(where)
    raise _refused(where, f"holds no picture; send {_WAYS}, as a string")


def source_of_url(url: str, where: str) -> Source:
    """Raises RequestInvalid."""
    scheme, colon, rest = url.strip().partition(":")
    scheme = scheme.lower()
    if not colon or scheme not in ("data", "http", "https", "file"):
        raise _refused(where, f"is no URL that is read here; send {_WAYS}")
    if scheme == "data":
        return Inline(_of_data_uri(rest, where))
    if len(url) > MAX_URL_CHARACTERS:
        raise _refused(where, f"the URL has more than {MAX_URL_CHARACTERS} characters")
    if scheme == "file":
        return LocalFile(_path_of(rest, where))
    return Remote(url.strip())


def _of_block(source: Mapping[str, Any], where: str) -> Source:
    kind = source.get("type")
    if kind == "base64":
        if not isinstance(data := source.get("data"), str):
            raise RequestInvalid(f"{where}.source.data: send a string.", param=where)
        return Inline(_decoded(data, where))
    if kind == "url":
        if not isinstance(url := source.get("url"), str):
            raise RequestInvalid(f"{where}.source.url: send a string.", param=where)
        return source_of_url(url, where)
    if kind == "file":
        raise _nothing_stored(where)
    raise _refused(where, f"the source's type {kind!r} is not one of base64, url")


def _of_data_uri(rest: str, where: str) -> bytes:
    """The media type is not believed: the bytes tell what they are."""
    head, comma, data = rest.partition(",")
    if not comma:
        raise _refused(where, "the data: URI has no comma, so no data; send it whole")
    if not head.replace(" ", "").lower().endswith(";base64"):
        if len(data) > 3 * MAX_PICTURE_BYTES:  # every byte may be written as %xx
            raise _too_large(where)
        return _not_empty(unquote_to_bytes(data), where)
    return _decoded(unquote(data) if "%" in data else data, where)


def _decoded(text: str, where: str) -> bytes:
    if len(text) > MAX_PICTURE_BYTES // 3 * _CHARACTERS_PER_3_BYTES * 2:  # with room for breaks
        raise _too_large(where)
    try:
        data = b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:  # ValueError: not ASCII
        raise _refused(where, f"the base64 is broken ({error}); send it whole") from None
    return _not_empty(data, where)


def _not_empty(data: bytes, where: str) -> bytes:
    if not data:
        raise _refused(where, "the picture has no bytes")
    if len(data) > MAX_PICTURE_BYTES:
        raise _too_large(where)
    return data


def _path_of(rest: str, where: str) -> str:
    """`file:///a`, `file://localhost/a` or `file:/a` → `/a`."""
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host.lower() not in ("", "localhost"):
            raise _refused(where, "a file: URL names a file of this machine, so no other host")
        rest = slash + path
    path = unquote(rest)
    if not path.startswith("/") or "\0" in path:
        raise _refused(where, "send the file's absolute path, as file:///folder/name.png")
    return path


def _nothing_stored(where: str) -> RequestInvalid:
    return _refused(where, f"no files are stored here; send the picture itself: {_WAYS}")


def _too_large(where: str) -> RequestInvalid:
    return _refused(
        where, f"the picture has more than {MAX_PICTURE_BYTES >> 20} MiB; send a smaller one"
    )


def _refused(where: str, problem: str) -> RequestInvalid:
    return RequestInvalid(f"{where}: {problem}.", param=where)
