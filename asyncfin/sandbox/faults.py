"""Faults on demand: what goes wrong, at which requests, and how a faulty response
leaves the server.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import Any

from aiohttp import web
from attrs import Attribute, define, evolve, field, frozen
from attrs.validators import in_, optional

from asyncfin.sandbox.dataset import Publication, read_publication
from asyncfin.sandbox.errors import RejectionError
from asyncfin.sandbox.request import Reply
from asyncfin.sandbox.rules import OPERATIONS


def make_number_check(
    kinds: tuple[type, ...], right: Callable[[Any], bool], text: str
) -> Any:
    """Return a check of a number: TypeError for another kind, True among them,
    ValueError for a wrong one.
    """

    def check(fault: Fault, attribute: Attribute[Any], value: Any) -> None:
        problem = f"{attribute.name} is {value!r}; it must be {text}"
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise TypeError(problem)
        if not right(value):
            raise ValueError(problem)

    return check


_NUMBER = (int, float)
_a_share = make_number_check(
    _NUMBER, lambda share: 0 <= share <= 1, "a number from 0 to 1"
)
_a_status = make_number_check(
    (int,), lambda status: 200 <= status <= 599, "a whole number from 200 to 599"
)
_not_negative = make_number_check(
    _NUMBER, lambda seconds: seconds >= 0, "a number of seconds from 0"
)
_positive = make_number_check(
    _NUMBER, lambda seconds: seconds > 0, "a number of seconds above 0"
)


def _as_numbers(nth: Any) -> frozenset[int] | None:
    if nth is None:
        return None
    is_collection = isinstance(nth, Iterable) and not isinstance(nth, str | bytes)
    numbers = tuple(nth) if is_collection else (nth,)
    # By exact type: True is an int too, but no number of a request.
    are_right = all(type(number) is int and number >= 1 for number in numbers)
    if not numbers or not are_right:
        raise ValueError(
            f"nth is {nth!r}; it must be a whole number from 1, or a list of them"
        )
    return frozenset(numbers)


@frozen(kw_only=True)
class Fault:
    """Which requests a fault meets. The rest of a fault is in its subclasses.

    Attributes:
        operation: as in the log: "dataset", "catalogue", "query", "usage", "limits", or
            "openapi" for the document, or None to count every request.
        nth: those of the counted requests, one number or more, from 1, since the
            fault was set, or None for all.
        share: the part of those that it meets, 0 to 1, drawn by `seed`.
    """

    operation: str | None = field(default=None, validator=optional(in_(OPERATIONS)))
    nth: Any = field(default=None, converter=_as_numbers)
    share: float = field(default=1.0, validator=_a_share)
    seed: int = 0


@frozen(kw_only=True)
class Latency(Fault):
    """Delay the answer by `seconds`, by the loop's clock."""

    seconds: float = field(validator=_not_negative)


@frozen(kw_only=True)
class Status(Fault):
    """Answer otherwise than the service, with none of its headers. The allowance does
    not count it.

    Attributes:
        status: 200 to 599. code: of the error object.
        retry_after: the value of the header, seconds or an HTTP date, or None.
        body: the whole body instead of an error object, for instance b"<html>" from
            some proxy.
    """

    status: int = field(validator=_a_status)
    retry_after: int | str | None = None
    code: str = "injected"
    body: bytes | None = None

    def reply(self, reply: Reply, request_id: str) -> Reply:
        """Return the response that goes out in place of the service's."""
        rejection = RejectionError(self.status, self.code, "An injected fault.")
        # No other header: a Content-Encoding, say, would not fit the new body.
        headers = {name: reply.headers[name] for name in ("Content-Type", "Date")}
        if self.retry_after is not None:
            headers["Retry-After"] = str(self.retry_after)
        body = rejection.body(request_id) if self.body is None else self.body
        return evolve(
            reply, status=self.status, body=body, headers=headers, charge=None
        )


@frozen(kw_only=True)
class Switch(Fault):
    """Make a publication the current one, just before the request is answered.

    Attributes:
        publication: as for `Sandbox.publish`, and rejected as there: if broken at
            once, and if the current publication has its dataset_id and other content,
            as an answer 500 with the code "sandbox_error".
    """

    publication: Publication = field(converter=read_publication)


@frozen(kw_only=True)
class Drop(Fault):
    """Reset the connection: before the answer (after=None), or after that share of its
    body.
    """

    after: float | None = field(default=None, validator=optional(_a_share))


@frozen(kw_only=True)
class Truncate(Fault):
    """Close the connection in good order, after that share of the body that
    Content-Length announced.
    """

    after: float = field(default=0.5, validator=_a_share)


@frozen(kw_only=True)
class Slow(Fault):
    """Send the body in at most ten pieces, spread over `seconds`."""

    seconds: float = field(validator=_positive)


@frozen(kw_only=True)
class Hang(Fault):
    """Send nothing, and leave the connection open."""


@define
class Armed:
    """A fault that was set, with what it has counted."""

    fault: Fault
    _requests: int = 0
    _random: random.Random = field(init=False)

    def __attrs_post_init__(self) -> None:
        # A separate source, so that one fault's draws do not depend on which others are
        # set.
        self._random = random.Random(self.fault.seed)  # noqa: S311

    def meets(self, operation: str | None) -> bool:
        """Count a request and return whether the fault meets it."""
        if self.fault.operation not in (None, operation):
            return False
        # Counted before the share is drawn: `nth` is among all requests of the
        # operation.
        self._requests += 1
        if self.fault.nth is not None and self._requests not in self.fault.nth:
            return False
        return self._random.random() < self.fault.share


async def deliver(
    http: web.BaseRequest, reply: Reply, faults: Iterable[Fault]
) -> web.StreamResponse:
    """Send the response, with the faults that concern its delivery."""
    # The first fault that changes how a response leaves decides; the others were dealt
    # with before.
    for fault in faults:
        # A future that is never resolved; the connection ends with the client or with
        # the sandbox.
        if isinstance(fault, Hang):
            await asyncio.get_running_loop().create_future()
        if isinstance(fault, Drop):
            response: web.StreamResponse = web.Response()
            if fault.after is not None:
                response = await begin(http, reply, fault.after)
            # The client may have left during the wait; then there is nothing to reset.
            if http.transport is not None:
                http.transport.abort()
            return response
        if isinstance(fault, Truncate):
            response = await begin(http, reply, fault.after)
            if http.transport is not None:
                http.transport.close()
            return response
        if isinstance(fault, Slow):
            response = await begin(http, reply, 0.0)
            # Rounded up, so that there are never more than ten pieces.
            size = max(1, -(-len(reply.body) // 10))
            for start in range(0, len(reply.body), size):
                await asyncio.sleep(fault.seconds / 10)
                await response.write(reply.body[start : start + size])
            return response
    return web.Response(status=reply.status, headers=reply.headers, body=reply.body)


async def begin(
    http: web.BaseRequest, reply: Reply, share: float
) -> web.StreamResponse:
    """Send the head of the response and that share of its body."""
    response = web.StreamResponse(status=reply.status, headers=reply.headers)
    response.content_length = len(
        reply.body
    )  # all of it is announced, however much is sent
    await response.prepare(http)
    await response.write(reply.body[: int(len(reply.body) * share)])
    return response
