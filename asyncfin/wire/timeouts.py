"""How long an attempt may take."""

from __future__ import annotations

from attrs import field, frozen

from asyncfin.wire.checks import positive_seconds


@frozen
class Timeouts:
    """How long one attempt may take, in seconds.

    Args:
        connect: until there is a connection, TLS included.
        read: between two arrivals of bytes.
        total: for all of it, to the last byte of the response. Waiting for the bucket, for a token and
            between attempts is not counted.

    Raises:
        SelectionError: one is no finite number above 0.
    """

    connect: float = field(default=10.0, validator=positive_seconds)
    read: float = field(default=30.0, validator=positive_seconds)
    total: float = field(default=60.0, validator=positive_seconds)
