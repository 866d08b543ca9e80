"""Faults on demand: what goes wrong, at which requests, and how a faulty answer leaves the server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import Any

from aiohttp import web
from attrs import define, evolve, field, frozen
from attrs.validators import ge, gt, in_, instance_of, le, optional

from asyncfin.sandbox.dataset import DatasetFile, Publication
from asyncfin.sandbox.request import OPERATIONS, RefusedError, Reply


def _share(default: Any) -> Any:
    return field(default=default, validator=optional([ge(0), le(1)]))


def _numbers(nth: int | Iterable[int] | None) -> frozenset[int] | None:
    return nth if nth is None else frozenset((nth,) if isinstance(nth, int) else nth)


@frozen(kw_only=True)
class Fault:
    """Which requests a fault meets. The rest of a fault is in its subclasses.

    operation: "dataset", "catalogue", "query", "usage", "limits"; None: every request is counted.
    nth: those of the counted requests, one number or several, from 1, since the fault was set; None: all.
    share: the part of those that it meets, 0 to 1, drawn by `seed`.
    """

    operation: str | None = field(default=None, validator=optional(in_(OPERATIONS)))
    nth: Any = field(default=None, converter=_numbers)
    share: float = _share(1.0)
    seed: int = 0


@frozen(kw_only=True)
class Latency(Fault):
    """The answer begins so many seconds later, by the loop's clock."""

    seconds: float = field(validator=ge(0))


@frozen(kw_only=True)
class Status(Fault):
    """Another answer in place of the service's; it is not counted against the allowance.

    retry_after: the value of the header, seconds or an HTTP date; None: no header. code: of the error object.
    body: the whole body instead of an error object, for instance b"<html>" from some proxy.
    """

    status: int = field(validator=instance_of(int))
    retry_after: int | str | None = None
    code: str = "injected"
    body: bytes | None = None

    def reply(self, reply: Reply, request_id: str) -> Reply:
        """The answer that goes out in place of the given one."""
        refusal = RefusedError(self.status, self.code, "A fault that was asked for.")
        headers = dict(reply.headers)
        headers.pop("Content-Encoding", None)
        if self.retry_after is not None:
            headers["Retry-After"] = str(self.retry_after)
        body = refusal.body(request_id) if self.body is None else self.body
        return evolve(reply, status=self.status, body=body, headers=headers, counted=False)


@frozen(kw_only=True)
class Switch(Fault):
    """A publication becomes the current one just before the request is answered."""

    publication: DatasetFile | Publication


@frozen(kw_only=True)
class Drop(Fault):
    """The connection is reset: before the answer (after=None), or after that share of its body."""

    after: float | None = _share(None)


@frozen(kw_only=True)
class Truncate(Fault):
    """The connection is closed in good order after that share of the body that Content-Length announced."""

    after: float = _share(0.5)


@frozen(kw_only=True)
class Slow(Fault):
    """The body comes in ten pieces spread evenly over so many seconds."""

    seconds: float = field(validator=gt(0))


@frozen(kw_only=True)
class Hang(Fault):
    """No answer comes, and the connection stays open."""


@define
class Armed:
    """A fault that was set, with what it has counted."""

    fault: Fault
    _seen: int = 0
    _random: random.Random = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._random = random.Random(self.fault.seed)  # noqa: S311

    def meets(self, operation: str | None) -> bool:
        """Count a request and say whether the fault meets it."""
        if self.fault.operation not in (None, operation):
            return False
        self._seen += 1
        if self.fault.nth is not None and self._seen not in self.fault.nth:
            return False
        return self._random.random() < self.fault.share


async def deliver(http: web.BaseRequest, reply: Reply, faults: Iterable[Fault]) -> web.StreamResponse:
    """Send the answer, as wrongly as the faults want."""
    for fault in faults:
        if isinstance(fault, Hang):
            await asyncio.get_running_loop().create_future()
        if isinstance(fault, Drop):
            begun = web.Response() if fault.after is None else await _begin(http, reply, fault.after)
            return _reset(http, begun)
        if isinstance(fault, Truncate):
            return _closed(http, await _begin(http, reply, fault.after))
        if isinstance(fault, Slow):
            return await _drip(http, reply, fault.seconds)
    return web.Response(status=reply.status, headers=reply.headers, body=reply.body)


async def _begin(http: web.BaseRequest, reply: Reply, share: float) -> web.StreamResponse:
    """The head of the answer and that share of its body."""
    response = web.StreamResponse(status=reply.status, headers=reply.headers)
    response.content_length = len(reply.body)
    await response.prepare(http)
    await response.write(reply.body[: int(len(reply.body) * share)])
    return response


async def _drip(http: web.BaseRequest, reply: Reply, seconds: float) -> web.StreamResponse:
    response = await _begin(http, reply, 0.0)
    size = max(1, -(-len(reply.body) // 10))
    for start in range(0, len(reply.body), size):
        await asyncio.sleep(seconds / 10)
        await response.write(reply.body[start : start + size])
    return response


def _reset(http: web.BaseRequest, response: web.StreamResponse) -> web.StreamResponse:
    if http.transport is not None:
        http.transport.abort()
    return response


def _closed(http: web.BaseRequest, response: web.StreamResponse) -> web.StreamResponse:
    if http.transport is not None:
        http.transport.close()
    return response
