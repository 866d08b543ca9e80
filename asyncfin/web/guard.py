"""Who may request what of the explorer: its own page may spend, and only a visit may
see cached values.
"""

import asyncio
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from asyncfin.web.backend import ClientGoneError
from asyncfin.web.question import fields_of

_FORM_SECONDS = 10
_MAX_FORM_BYTES = 1_000_000


def check_own_page(headers: Mapping[str, str]) -> None:
    """Raise unless a request that may spend was sent by the explorer's own page.

    A browser marks a request of another site in Sec-Fetch-Site. It sends that header
    only over https and to this machine; elsewhere it sends Origin with each POST.

    Raises:
        HTTPException: 403.
    """
    site = headers.get("sec-fetch-site")
    own = (
        _is_own(headers.get("origin", ""), headers.get("host", ""))
        if site is None
        else site == "same-origin"
    )
    if not own:
        raise HTTPException(403, "only the explorer's own page may request this")


def is_visit(headers: Mapping[str, str]) -> bool:
    """Return whether a GET opens the page, so that it may show values.

    A picture, frame, script or prefetch of a foreign page would only cost time: nothing
    is read for it.
    """
    purposes = f"{headers.get('sec-purpose', '')} {headers.get('purpose', '')}"
    return (
        headers.get("sec-fetch-dest", "document") == "document"
        and "prefetch" not in purposes.lower()
    )


async def received_form(request: Request) -> dict[str, list[str]]:
    """Return the fields of a form that the explorer's own page has sent.

    Raises:
        HTTPException: another page sent it, it did not arrive in time, is too large, or
            is not text.
        ClientGoneError: the visitor has left.
        SelectionError: as for `fields_of`.
    """
    check_own_page(request.headers)
    try:
        async with asyncio.timeout(_FORM_SECONDS):
            return fields_of((await _body(request)).decode())
    except ClientDisconnect:
        raise ClientGoneError("the visitor has left") from None
    except TimeoutError:
        raise HTTPException(
            408, f"the form did not arrive within {_FORM_SECONDS} seconds"
        ) from None
    except UnicodeDecodeError:
        raise HTTPException(400, "the form is not text") from None


def _is_own(origin: str, host: str) -> bool:
    """Return whether an Origin is of the same host and port as a Host, which is an
    allowed one.
    """
    try:
        sent, served = urlsplit(origin), urlsplit(f"//{host}")
        default = {"http": 80, "https": 443}.get(sent.scheme)
        return (
            default is not None
            and sent.hostname is not None
            and "@" not in sent.netloc  # no browser's
            and (sent.hostname, sent.port or default)
            == (served.hostname, served.port or default)
        )
    except ValueError:  # a port that is not a number
        return False


async def _body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        # Counted as it arrives: a Content-Length may be missing, or wrong.
        if len(body) > _MAX_FORM_BYTES:
            raise HTTPException(413, "the form is too large")
    return body
