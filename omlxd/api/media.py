"""The bytes of a job's pictures, from wherever they are; every refusal names the picture."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import msgspec

from omlxd.api.media_files import FileRefused, read_below
from omlxd.api.ports import ServerSettings
from omlxd.api.web_fetch import Fetcher, FetchFailed
from omlxd.api.wire.dialect import Job
from omlxd.api.wire.picture_header import NoPicture, read_header
from omlxd.api.wire.picture_source import (
    MAX_PICTURE_BYTES,
    Inline,
    LocalFile,
    Picture,
    Remote,
    Source,
)
from omlxd.errors import RequestInvalid

MAX_TOTAL_BYTES = 64 * 2**20  # of a request's pictures; they travel to the worker in one frame
MAX_PIXELS = 50_000_000  # of one picture; a phone's 48 megapixels are within it
TIMEOUT_S = 30.0  # for all pictures of a request; nothing is sent to its client meanwhile
_AT_ONCE = 4


class MediaReader:
    """Pictures for every route; `fetcher` gets what is on the web."""

    def __init__(self, fetcher: Fetcher | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        self._fetcher = fetcher or Fetcher(limit=MAX_PICTURE_BYTES)
        self._timeout_s = timeout_s

    async def read(self, job: Job, settings: ServerSettings) -> Job:
        """The job with `images` in its request. Raises RequestInvalid for the first bad picture."""
        _refuse_closed(job.pictures, settings)
        try:
            async with asyncio.timeout(self._timeout_s):
                images = await _Reading(self._fetcher, settings, job.pictures).all()
        except TimeoutError:
            where = job.pictures[-1].where
            problem = f"the pictures up to this one took more than {self._timeout_s:g} s to get"
            raise _refused(where, f"{problem}; send them as data: URIs") from None
        (request,) = job.requests
        return dataclasses.replace(
            job, requests=(msgspec.structs.replace(request, images=images),), pictures=()
        )


class _Reading:
    """Of one request: what occurs twice is fetched once, and it all counts."""

    def __init__(
        self, fetcher: Fetcher, settings: ServerSettings, pictures: tuple[Picture, ...]
    ) -> None:
        self._fetcher = fetcher
        self._settings = settings
        self._pictures = pictures
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._total = 0

    async def all(self) -> list[bytes]:
        fetched: dict[Source, asyncio.Task[bytes]] = {}
        try:
            for picture in self._pictures:
                if picture.source not in fetched:
                    fetched[picture.source] = asyncio.create_task(self._one(picture))
            images = [await fetched[picture.source] for picture in self._pictures]
        finally:
            for task in fetched.values():
                task.cancel()
            await asyncio.gather(*fetched.values(), return_exceptions=True)
        if sum(map(len, images)) > MAX_TOTAL_BYTES:
            raise self._too_much
        return images

    @property
    def _too_much(self) -> RequestInvalid:
        """Of all of them; so the place is that of the last, whichever came in last."""
        return _refused(
            self._pictures[-1].where,
            f"the pictures up to this one have more than {MAX_TOTAL_BYTES >> 20} MiB together; "
            "send fewer or smaller ones, or leave out old ones",
        )

    async def _one(self, picture: Picture) -> bytes:
        async with self._gate:
            # Counted as they come, and not fetched on: a hundred that are each within their limit
            # are too many.
            data = b"" if self._total > MAX_TOTAL_BYTES else await self._bytes(picture)
        self._total += len(data)
        if self._total > MAX_TOTAL_BYTES:
            raise self._too_much
        _check_header(data, picture.where)
        return data

    async def _bytes(self, picture: Picture) -> bytes:
        match picture.source:
            case Inline(data):
                return data
            case LocalFile(path):
                roots = self._settings.media_roots
                try:
                    return await asyncio.to_thread(
                        read_below, roots, Path(path), limit=MAX_PICTURE_BYTES
                    )
                except FileRefused as error:
                    raise _refused(picture.where, f"the file {path!r} {error}") from error
            case Remote(url):
                try:
                    return await self._fetcher.fetch(url)
                except FetchFailed as error:
                    problem = f"the picture could not be fetched: {error}"
                    raise _refused(picture.where, problem) from error


def _refuse_closed(pictures: tuple[Picture, ...], settings: ServerSettings) -> None:
    """What the settings do not allow, before anything is fetched."""
    for picture in pictures:
        if isinstance(picture.source, Remote) and not settings.allow_remote_media:
            raise _refused(
                picture.where,
                "pictures are not fetched from the web here; send a data: URI, or set "
                "server.allow_remote_media",
            )
        if isinstance(picture.source, LocalFile) and not settings.media_roots:
            raise _refused(
                picture.where,
                "no files are read here; send a data: URI, or name the folders they may come from "
                "in server.media_roots",
            )


def _check_header(data: bytes, where: str) -> None:
    try:
        header = read_header(data)
    except NoPicture as error:
        raise _refused(where, f"what was sent {error}") from None
    if header.pixels > MAX_PIXELS:
        raise _refused(
            where,
            f"the {header.format} has {header.width} x {header.height} pixels; the most is "
            f"{MAX_PIXELS // 1_000_000} million, so send a smaller one",
        )


def _refused(where: str, problem: str) -> RequestInvalid:
    return RequestInvalid(f"{where}: {problem}.", param=where)
