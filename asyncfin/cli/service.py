"""The options of where the service is, and how fast requests are sent."""

import os
import re
from pathlib import Path
from typing import Annotated

from attrs import field, frozen
from cyclopts import Group, Parameter
from cyclopts.validators import Number

from asyncfin.cli.exits import UsageError
from asyncfin.cli.options import STDIN, opened

_SERVICE = Group("Service", sort_key=3)
_PACE = Group("Pace", sort_key=4)
_BASE_URL = Parameter(help="The service's address.", env_var="ASYNCFIN_BASE_URL")
_TOKEN_FILE = Parameter(
    help="A file with the access token, read again when it is refused; - for standard "
    "input."
    " [else: ASYNCFIN_TOKEN]",
    allow_leading_hyphen=True,
)


@Parameter(name="*", group=_SERVICE)
@frozen(kw_only=True)
class Service:
    """Where the service is, and the access token for it."""

    base_url: Annotated[str | None, _BASE_URL] = None
    token_file: Annotated[Path | None, _TOKEN_FILE] = None
    allow_http: Annotated[
        bool,
        Parameter(
            help="Accept an http address of another machine: the token is sent "
            "unencrypted."
        ),
    ] = False
    no_cache: Annotated[
        bool, Parameter(help="Do not use the cache of ASYNCFIN_CACHE.")
    ] = False
    _token: str | None = field(init=False, repr=False)

    @_token.default
    def _read(self) -> str | None:
        # Read here and not in the event loop, where Ctrl-C would not end a wait for
        # standard input.
        if self.token_file is None:
            return None
        # The path is not printed: it may be the token itself, given in the wrong place.
        option = "--token-file -" if self.token_file == STDIN else "--token-file"
        with opened(
            self.token_file, option, "give a file that contains the token"
        ) as file:
            # The first line alone, without its end: editors add one.
            return file.readline().strip()

    def check(self) -> None:
        """Raise UsageError without an address or a token, before the client is
        imported.
        """
        self.address()
        self.token()

    def address(self) -> str:
        """Return the base URL.

        Raises:
            UsageError: none is given.
        """
        if not self.base_url:
            raise UsageError(
                "no service is given: set ASYNCFIN_BASE_URL or give --base-url"
                " (`asyncfin sandbox` starts one here)"
            )
        return self.base_url

    def token(self) -> str:
        """Return the access token.

        Raises:
            UsageError: there is none, or the service would refuse it without saying
                why.
        """
        token = (
            os.environ.get("ASYNCFIN_TOKEN") if self.token_file is None else self._token
        )
        if not token:
            raise UsageError(
                "there is no access token: set ASYNCFIN_TOKEN or give --token-file FILE"
            )
        # Both would be refused by the service with a 401 that does not say why.
        if re.match(r"\s*bearer\s", token, re.IGNORECASE):
            raise UsageError(
                "the access token must be given without the word Bearer, which is sent "
                "with it"
            )
        if token != token.strip():
            raise UsageError(
                "the access token must have no blank or line end before or after it"
            )
        return token


@Parameter(name="*", group=_PACE)
@frozen(kw_only=True)
class Pace:
    """How fast requests are sent."""

    rate: Annotated[
        float | None,
        Parameter(
            help="Requests a second. [learned from refusals if left out]",
            validator=Number(gt=0),
        ),
    ] = None
    daily_budget: Annotated[
        int | None,
        Parameter(
            help="Requests that this command may send in a day, UTC.",
            validator=Number(gte=1),
        ),
    ] = None
    max_in_flight: Annotated[
        int,
        Parameter(
            help="Requests in flight at once, and entities.",
            validator=Number(gte=1),
            show_default=True,
        ),
    ] = 8
