"""Who holds the lock of an extraction: what the lock says in JSON."""

from __future__ import annotations

import json
import os
import socket
from datetime import datetime
from uuid import uuid4

from attrs import asdict, evolve, field, frozen

from asyncfin.clock import utc_now, utc_text
from asyncfin.errors import own_version
from asyncfin.extraction.strict import structure

# A run renews its lock each minute.
RENEW_SECONDS = 60.0


def _now() -> str:
    return utc_text(utc_now())


@frozen
class Holder:
    """The run that holds a lock.

    Attributes:
        owner: a random text: two runs on one machine, or a process id that is used again, differ in it.
        host, pid: its machine and process.
        began, renewed: when it took the lock, and renewed it last, as ISO text by its machine's clock.
        version: the library's.
        renewals: how often it has written the lock: two of its locks never have equal contents.
    """

    owner: str = field(factory=lambda: uuid4().hex)
    host: str = field(factory=socket.gethostname)
    pid: int = field(factory=os.getpid)
    began: str = field(factory=_now)
    renewed: str = field(factory=_now)
    version: str = field(factory=own_version)
    renewals: int = 0

    def renew(self) -> Holder:
        """Return the holder as it is to be written next."""
        return evolve(self, renewed=_now(), renewals=self.renewals + 1)

    @property
    def content(self) -> bytes:
        """The content of its lock."""
        return json.dumps(asdict(self)).encode()


def holder_in(content: bytes) -> Holder | None:
    """Return the holder that a lock names; None: it does not name one."""
    try:
        found = structure(json.loads(content), Holder)
        datetime.fromisoformat(found.began), datetime.fromisoformat(found.renewed)
    except ValueError:
        return None
    return found
