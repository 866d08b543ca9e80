"""Who may request what of the explorer: its own page may spend, and only a visit may
see cached values.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TypeAlias
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from asyncfin.web.backend import ClientGoneError
from asyncfin.web.question import fields_of

Form: TypeAlias = Mapping[str, Sequence[str]]
_FORM_SECONDS = 10
_MAX_FORM_BYTES = 1_000_000


def is_visit(headers: Mapping[str, str]) -> bool:
    """Whether a GET opens the page, so that it may show values.

    A picture, frame, script or prefetch of a foreign page would only cost time: nothing
    is read for it.
    """
    purposes = f"{headers.get('sec-purpose', '')} {headers.get('purpose', '')}"
    is_document = headers.get("sec-fetch-dest", "document") == "document"
    return is_document and "prefetch" not in purposes.lower()


async def receive_form(request: Request) -> dict[str, list[str]]:
    """Receive the fields of a form that the explorer's own page has sent.

    Raises:
        HTTPException: another page sent it, it did not arrive in time, is too large, or
            is not text.
        ClientGoneError: the visitor has left.
        SelectionError: as for `fields_of`.
    """
    if not _is_own_page(request.headers):
        raise HTTPException(403, "only the explorer's own page may request this")
    body = b""
    try:
        async with asyncio.timeout(_FORM_SECONDS):
            async for part in request.stream():
                body += part
                # Counted as it arrives: a Content-Length may be missing, or wrong.
                if len(body) > _MAX_FORM_BYTES:
                    raise HTTPException(413, "the form is too large")
        return fields_of(body.decode())
    except ClientDisconnect:
        raise ClientGoneError("the visitor has left") from None
    except TimeoutError:
        raise HTTPException(
            408, f"the form did not arrive within {_FORM_SECONDS} seconds"
        ) from None
    except UnicodeDecodeError:
        raise HTTPException(400, "the form is not text") from None


def _is_own_page(headers: Mapping[str, str]) -> bool:
    """Whether a request that may spend was sent by the explorer's own page.

    A browser marks a request of another site in Sec-Fetch-Site. It sends that header
    only over https and to this machine; elsewhere it sends Origin with each POST, whose
    host and port must be those of Host.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    try:
        origin = urlsplit(headers.get("origin", ""))
        host = urlsplit(f"//{headers.get('host', '')}")
        port = {"http": 80, "https": 443}.get(origin.scheme)
        if port is None or origin.hostname is None or "@" in origin.netloc:
            return False
        return (origin.hostname, origin.port or port) == (
            host.hostname,
            host.port or port,
        )
    except ValueError:  # a port that is not a number
        return False
