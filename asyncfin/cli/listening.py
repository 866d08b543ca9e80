"""A port of this machine for the explorer or the assistants' tools."""

import os
import socket

from asyncfin.cli.exits import UsageError


def listening(what: str, host: str, port: int) -> socket.socket:
    """Return a socket that only this machine reaches: its users spend requests. Errors
    call it `what`.
    """
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except OSError as error:
        reason = os.strerror(error.errno or 0)
    raise UsageError(
        f"{what} can't be used ({reason}): choose another port, or 0 for a free one"
    )
