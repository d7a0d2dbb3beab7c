"""Where a picture comes from, in every form that clients send."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlxd.api.wire import picture_source
from omlxd.api.wire.picture_source import Inline, LocalFile, Remote, Source, source_of
from omlxd.errors import RequestInvalid
from tests.support.pictures import data_uri

AT = "messages[0].content[1]"
BYTES = b"\x89PNG\r\n"
URI = data_uri(BYTES)
TEXT = b64encode(BYTES).decode()


def of_url(url: str) -> Source:
    return source_of({"type": "image_url", "image_url": {"url": url}}, AT)


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ({"type": "image_url", "image_url": {"url": URI, "detail": "high"}}, Inline(BYTES)),
        ({"type": "image_url", "image_url": URI}, Inline(BYTES)),
        ({"type": "input_image", "image_url": URI, "detail": "auto"}, Inline(BYTES)),
        ({"type": "image", "image": URI}, Inline(BYTES)),
        ({"type": "image", "url": "https://a/b.png"}, Remote("https://a/b.png")),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "x/y", "data": TEXT}},
            Inline(BYTES),
        ),
        ({"type": "image", "source": {"type": "url", "url": "http://a/b"}}, Remote("http://a/b")),
        ({"type": "image", "source": {"type": "url", "url": URI}}, Inline(BYTES)),
    ],
)
def test_every_dialects_form(part: dict[str, Any], source: Source) -> None:
    """The same picture, whoever writes it."""
    assert source_of(part, AT) == source


@pytest.mark.parametrize(
    ("url", "source"),
    [
        (f"  {URI}\n", Inline(BYTES)),
        (f"DATA:;base64,{TEXT}", Inline(BYTES)),
        (f"data:image/png;charset=x; BASE64,{TEXT[:3]}\r\n {TEXT[3:]}", Inline(BYTES)),
        (f"data:image/png;base64,{TEXT[0]}%{ord(TEXT[1]):02x}{TEXT[2:]}", Inline(BYTES)),
        ("data:image/svg+xml,%3Csvg/%3E", Inline(b"<svg/>")),
        ("HTTPS://a/B", Remote("HTTPS://a/B")),
        ("file:///a/b%20c.png", LocalFile("/a/b c.png")),
        ("file://localhost/a", LocalFile("/a")),
        ("file:/a", LocalFile("/a")),
        ("file:///a/../etc/passwd", LocalFile("/a/../etc/passwd")),
    ],
)
def test_urls(url: str, source: Source) -> None:
    """Data is read at once; what points elsewhere is only noted."""
    assert of_url(url) == source


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        ({"image_url": {"url": "data:image/png;base64,"}}, "no bytes"),
        ({"image_url": {"url": "data:image/png;base64,AAA"}}, "base64 is broken"),
        ({"image_url": {"url": "data:image/png;base64,A*AA"}}, "base64 is broken"),
        ({"image_url": {"url": "data:image/png;base64,ÄÄÄÄ"}}, "base64 is broken"),
        ({"image_url": {"url": "data:image/png;base64"}}, "no comma"),
        ({"image_url": {"url": "/etc/passwd"}}, "is no URL"),
        ({"image_url": {"url": "../x.png"}}, "is no URL"),
        ({"image_url": {"url": TEXT}}, "is no URL"),
        ({"image_url": {"url": "C:\\x.png"}}, "is no URL"),
        ({"image_url": {"url": ""}}, "is no URL"),
        ({"image_url": {"url": "file://server/share"}}, "no other host"),
        ({"image_url": {"url": "file:x.png"}}, "absolute path"),
        ({"image_url": {"url": "file:///a%00b"}}, "absolute path"),
        ({"image_url": {"url": "https://a/" + "x" * 9000}}, "more than 8192 characters"),
        ({"image_url": {"url": 7}}, "holds no picture"),
        ({"image_url": None}, "holds no picture"),
        ({"image_url": {}}, "holds no picture"),
        ({"file_id": "file-1"}, "no files are stored"),
        ({"source": {"type": "file", "file_id": "x"}}, "no files are stored"),
        ({"source": {"type": "base64"}}, "source.data"),
        ({"source": {"type": "url", "url": 1}}, "source.url"),
        ({"source": {"type": "new"}}, "'new' is not one of base64, url"),
        ({"source": {}}, "None is not one of base64, url"),
    ],
)
def test_what_gives_no_picture(part: dict[str, Any], problem: str) -> None:
    """Each is refused with its place, and with what is wrong."""
    with pytest.raises(RequestInvalid, match=problem) as refusal:
        source_of(part, AT)
    assert refusal.value.param == AT
    assert str(refusal.value).startswith(AT)


@pytest.mark.parametrize("spread", ["", "\n"])
def test_the_limit_counts_bytes(monkeypatch: pytest.MonkeyPatch, spread: str) -> None:
    """Of the picture, not of the text it is sent as."""
    monkeypatch.setattr(picture_source, "MAX_PICTURE_BYTES", 30)
    for length in (29, 30):
        text = spread.join(b64encode(bytes(length)).decode())
        assert of_url(f"data:,{'%00' * length}") == Inline(bytes(length))
        assert of_url(f"data:;base64,{text}") == Inline(bytes(length))
    for length in (31, 33, 300):
        for uri in (f"data:,{'%00' * length}", data_uri(bytes(length))):
            with pytest.raises(RequestInvalid, match="more than 0 MiB"):
                of_url(uri)


@given(st.binary(min_size=1, max_size=99), st.integers(1, 80))
def test_data_comes_through_in_any_line_length(data: bytes, width: int) -> None:
    """Some clients break base64 into lines."""
    text = b64encode(data).decode()
    lines = "\r\n".join(text[at : at + width] for at in range(0, len(text), width))
    assert of_url(f"data:image/x;base64,{lines}") == Inline(data)


@given(st.text(max_size=60))
def test_any_url_is_a_source_or_refused(url: str) -> None:
    """Nothing else comes out of what a client wrote."""
    for text in (url, f"data:{url}", f"file:{url}", f"data:;base64,{url}"):
        try:
            found = of_url(text)
        except RequestInvalid:
            continue
        assert isinstance(found, Inline | Remote | LocalFile)
