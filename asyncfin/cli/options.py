"""The options that commands share: the service, the selection of series, the periods."""

import os
import re
import socket
import warnings
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

from attrs import asdict, field, frozen
from cyclopts import Group, Parameter

from asyncfin.cache.store import Cache
from asyncfin.cli.exits import UsageError, prefix_errors
from asyncfin.cli.mistakes import whole
from asyncfin.cli.streams import print_error
from asyncfin.client import Client
from asyncfin.errors import ArgumentError
from asyncfin.model.period import Period, period_hint, read_label
from asyncfin.model.select import Select
from asyncfin.model.selection import RULES, Exact, FiscalRange, PeriodSelection, Trailing, rule_of
from asyncfin.model.words import either
from asyncfin.optional import library
from asyncfin.pacing.bucket import TokenBucket
from asyncfin.pacing.file import FileBucket
from asyncfin.pacing.redis import RedisBucket
from asyncfin.wire.address import UnencryptedAddressError, check_user_agent, checked_base_url
from asyncfin.wire.token import TokenSource, token_file

if TYPE_CHECKING:
    from asyncfin.cache.file import FileCache

Several = tuple[str, ...]
AsJson = Annotated[bool, Parameter(name="--json", help="Print JSON instead.")]
AsCsv = Annotated[
    bool,
    Parameter(
        name="--csv", help="Print comma-separated lines. Texts like formulas get a leading apostrophe."
    ),
]
AsRawCsv = Annotated[bool, Parameter(name="--csv-raw", help="The same, with every text unchanged.")]
STDIN = Path("-")

_SERIES = Group("Which series (each option narrows; repeat one for any of several)", sort_key=1)
period_group = Group("Which periods (all of them if none is named)", sort_key=2)
_SERVICE = Group("Service", sort_key=3)
entity_group = Group("Which entities", sort_key=0)


def _option(name: str, help: str) -> Parameter:
    return Parameter(name=f"--{name}", help=help)


_BASE_URL = Parameter(help="The service's address.", env_var="ASYNCFIN_BASE_URL")
_TOKEN_FILE = Parameter(
    help="A file with the access token, read again when it is refused; - for standard input."
    " [else: ASYNCFIN_TOKEN]",
    allow_leading_hyphen=True,
)


def cached() -> "FileCache | None":
    """Return the cache that ASYNCFIN_CACHE and ASYNCFIN_ACCOUNT name; None: none is named."""
    if not (folder := os.environ.get("ASYNCFIN_CACHE")):
        return None
    from asyncfin.cache.file import FileCache  # SQLite, which most commands do without

    with prefix_errors("ASYNCFIN_CACHE"):
        return FileCache(folder, account=os.environ.get("ASYNCFIN_ACCOUNT") or None)


def is_folder(path: str) -> bool:
    """Return whether a folder exists; ~ is the user's."""
    # Unlike `Path.expanduser`, it leaves the ~ of a user that does not exist.
    return os.path.isdir(os.path.expanduser(path))


@Parameter(name="*", group=_SERVICE)
@frozen(kw_only=True)
class Service:
    """Where the service is, and the access token for it."""

    base_url: Annotated[str | None, _BASE_URL] = None
    token_file: Annotated[Path | None, _TOKEN_FILE] = None
    allow_http: Annotated[
        bool, Parameter(help="Accept an http address of another machine: the token is sent unencrypted.")
    ] = False
    no_cache: Annotated[bool, Parameter(help="Do not use the cache of ASYNCFIN_CACHE.")] = False
    _token: str | None = field(init=False, repr=False)

    @_token.default
    def _read(self) -> str | None:
        # Read here and not in the event loop, where Ctrl-C would not end a wait for standard input.
        if self.token_file is None:
            return None
        # The path is not printed: it may be the token itself, given in the wrong place.
        option = "--token-file -" if self.token_file == STDIN else "--token-file"
        with opened(self.token_file, option, "give a file that contains the token") as file:
            # The first line alone, without its end: editors add one.
            return file.readline().strip()

    @asynccontextmanager
    async def client(
        self,
        *,
        rate: float | None = None,
        daily_budget: float | None = None,
        otherwise: Cache | None = None,
        **options: Any,
    ) -> AsyncIterator[Client]:
        """Yield a client of the service with a bucket of this pace; the options are those of `Client`.

        Args:
            otherwise: the cache to use if the environment has none.
        """
        bucket, cache = paced(rate, daily_budget), None if self.no_cache else cached()
        # A cache without an account belongs to the token that it is given.
        is_fixed = cache is not None and not os.environ.get("ASYNCFIN_ACCOUNT")
        async with (
            self._client(is_fixed=is_fixed, bucket=bucket, cache=cache or otherwise, **options) as client,
            aclosing(bucket),
            aclosing(cache) if cache else nullcontext(),
        ):
            yield client

    def _client(self, *, is_fixed: bool, **options: Any) -> Client:
        address, token = self._address(), self._token_source(is_fixed=is_fixed)
        user_agent = os.environ.get("ASYNCFIN_USER_AGENT") or None
        with prefix_errors("ASYNCFIN_USER_AGENT"):
            check_user_agent("it", user_agent)
        try:
            # A Python warning would show a line of this file.
            with warnings.catch_warnings(record=True) as caught:
                # Also one that Python would show only once, or that the environment turns off.
                warnings.simplefilter("always")
                client = Client(address, token, allow_http=self.allow_http, user_agent=user_agent, **options)
        # The library does not know the options of the command line.
        except UnencryptedAddressError as error:
            complaint = (
                "--base-url must be https, unless the host is this machine or --allow-http is given"
                f"{error.given}"
            )
        except ArgumentError as error:
            complaint = str(error)
        else:
            for warning in caught:
                print_error(f"asyncfin: {warning.message}")
            return client
        raise UsageError(complaint)

    def identity(self) -> tuple[str, str]:
        """Return the base URL and the access token, by which a cache distinguishes accounts."""
        return checked_base_url(self._address(), allow_http=self.allow_http), self._checked_token()

    def _address(self) -> str:
        if not self.base_url:
            raise UsageError(
                "no service is given: set ASYNCFIN_BASE_URL or give --base-url"
                " (`asyncfin sandbox` starts one here)"
            )
        return self.base_url

    def _token_source(self, *, is_fixed: bool) -> TokenSource:
        """Return the token, or what reads it again from its file after the service has refused it."""
        token = self._checked_token()
        # What is not a regular file, such as the output of another command, can be read once.
        if self.token_file is None or is_fixed or not self.token_file.is_file():
            return token
        return token_file(self.token_file)

    def _checked_token(self) -> str:
        token = os.environ.get("ASYNCFIN_TOKEN") if self.token_file is None else self._token
        if not token:
            raise UsageError("there is no access token: set ASYNCFIN_TOKEN or give --token-file FILE")
        # Both would be refused by the service with a 401 that does not say why.
        if re.match(r"\s*bearer\s", token, re.IGNORECASE):
            raise UsageError("the access token must be given without the word Bearer, which is sent with it")
        if token != token.strip():
            raise UsageError("the access token must have no blank or line end before or after it")
        return token


def paced(rate: float | None, daily_budget: float | None) -> TokenBucket | FileBucket | RedisBucket:
    """Return the bucket that ASYNCFIN_BUCKET shares with other processes, or a separate one."""
    place = os.environ.get("ASYNCFIN_BUCKET")
    if not place:
        return TokenBucket(rate, daily_budget=daily_budget)
    with prefix_errors("ASYNCFIN_BUCKET"):
        # Anything else is the path of a folder on this machine.
        if not re.match(r"(rediss?|unix)://", place):
            return FileBucket(place, rate, daily_budget=daily_budget)
        account = os.environ.get("ASYNCFIN_ACCOUNT")
        if not account:
            raise UsageError(
                "ASYNCFIN_BUCKET is the URL of a Redis server: name the account by ASYNCFIN_ACCOUNT"
            )
        require("redis", "redis", "ASYNCFIN_BUCKET")
        return RedisBucket(place, account=account, rate=rate, daily_budget=daily_budget)


@contextmanager
def opened(path: Path, what: str, advice: str) -> Iterator[TextIO]:
    """Open a text file or standard input, which errors call `what`. Reading blocks."""
    try:
        # Not sys.stdin, which decodes by the locale, and is None if standard input is closed.
        source = 0 if path == STDIN else path
        with open(source, encoding="utf-8-sig", closefd=source != 0) as file:
            yield file
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
    else:
        return
    raise UsageError(f"{what} can't be read ({reason}): {advice}")


def listening(what: str, host: str, port: int) -> socket.socket:
    """Return a socket that only this machine reaches: its users spend requests. Errors call it `what`."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
    raise UsageError(f"{what} can't be used ({reason}): choose another port, or 0 for a free one")


@Parameter(name="*", group=_SERIES)
@frozen(kw_only=True)
class Selection:
    """Which series."""

    metric: Annotated[Several, _option("metric", "A metric id.")] = ()
    group: Annotated[Several, _option("group", "A reporting group id.")] = ()
    scope: Annotated[Several, _option("scope", "A scope path: group=scope|group=scope.")] = ()
    scope_group: Annotated[
        Several, _option("scope-group", "Paths that use exactly the scope groups named by this option.")
    ] = ()
    basis: Annotated[Several, _option("basis", "A reporting basis, such as segment.")] = ()
    cadence: Annotated[Several, _option("cadence", "A reporting cadence, such as annual.")] = ()
    period_meaning: Annotated[Several, _option("period-meaning", "A period meaning.")] = ()
    series: Annotated[
        Several, _option("series", "A series id, as `catalogue --csv` and results contain it.")
    ] = ()
    label: Annotated[str | None, _option("label", "A part of the series' label, in any case.")] = None

    def select(self) -> Select:
        """Return the Select that the options describe."""
        for name, given in asdict(self).items():
            refuse_bytes(f"--{name.replace('_', '-')}", given)
        return Select(
            metric_ids=self.metric or None,
            scope_combinations=self.scope or None,
            reporting_group_ids=self.group or None,
            scope_group_ids=self.scope_group or None,
            basis=self.basis or None,
            cadence=self.cadence or None,
            period_meaning=self.period_meaning or None,
            label=self.label,
            series_ids=self.series or None,
        )


def require(name: str, extra: str, what: str) -> None:
    """Refuse, before a request is spent, what needs a module that is not installed."""
    try:
        library(name, extra)
    except ImportError as error:
        missing = str(error)
    else:
        return
    raise UsageError(f"{what} needs more: {missing}")


def choose_one(options: Mapping[str, bool]) -> str | None:
    """Return the only option that is given, if any; refuse several."""
    given = [name for name, flag in options.items() if flag]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other: choose one")
    return given[0] if given else None


def refuse_bytes(option: str, given: Several | str | None) -> None:
    """Refuse arguments that are not UTF-8: Python decodes them to text that cannot be encoded."""
    for text in (given,) if isinstance(given, str) else given or ():
        if any(0xD800 <= ord(sign) <= 0xDFFF for sign in text):
            raise UsageError(f"{option} must be text in UTF-8, not {text!r}")


# The options of the rules, for messages.
_RULE_OPTIONS = either([f"--{rule.name}" for rule in RULES])


@Parameter(name="*", group=period_group)
@frozen(kw_only=True)
class Periods:
    """Which periods."""

    annual: Annotated[bool, _option("annual", "Fiscal years.")] = False
    quarterly: Annotated[bool, _option("quarterly", "Periods of three months.")] = False
    half_yearly: Annotated[bool, _option("half-yearly", "Periods of six months.")] = False
    exact: Annotated[
        Several, _option("exact", "A period: FY2024, FY2024-Q3, FY2024-H1, FY2024-9M; repeatable.")
    ] = ()
    trailing: Annotated[
        int | None,
        Parameter(
            name="--trailing",
            help="List the periods of this many months, up to the latest value; --ttm adds up.",
            converter=whole,
        ),
    ] = None
    first: Annotated[str | None, _option("from", "The first fiscal end: a year, FY2024-03, or a period.")] = (
        None
    )
    final: Annotated[str | None, _option("to", "The last fiscal end, in the same forms.")] = None
    last: Annotated[
        int | None,
        Parameter(
            name="--last",
            help=f"Only this many, the latest ones, with {_RULE_OPTIONS}.",
            converter=whole,
        ),
    ] = None

    def selection(self) -> PeriodSelection:
        """Return the period selection that the options describe."""
        rules = {f"--{rule.name}": rule.name for rule in RULES}
        modes = {
            **{option: getattr(self, name.replace("-", "_")) for option, name in rules.items()},
            "--exact": bool(self.exact),
            "--trailing": self.trailing is not None,
        }
        mode = choose_one(modes) or "--from"
        # Options that have no meaning in this mode.
        if self.last is not None and mode not in rules:
            raise UsageError(f"--last goes with {_RULE_OPTIONS}: add one of them")
        if mode in ("--exact", "--trailing") and (self.first or self.final):
            raise UsageError(f"{mode} takes neither --from nor --to: leave them out")
        start, end = bound("--from", self.first, 1), bound("--to", self.final, 12)
        if start and end and end.fiscal_end < start.fiscal_start:
            raise UsageError(f"--to must not be before --from: {self.final} is before {self.first}")
        if any("," in text for text in self.exact):
            again = " ".join(f"--exact {part.strip()}" for text in self.exact for part in text.split(","))
            raise UsageError(f"--exact is repeated: {again}")
        with prefix_errors(mode if self.last is None else "--last"):
            if mode in rules:
                return rule_of(rules[mode], start, end, self.last)
            if self.trailing is not None:
                return Trailing(self.trailing)
            return Exact(self.exact) if self.exact else FiscalRange(start, end)


def bound(option: str, text: str | None, month: int) -> Period | None:
    """Return the period or fiscal end of an option; `month` completes a year."""
    if text is None:
        return None
    day = re.fullmatch(r"(\d{4}-\d\d)-\d\d", text, re.ASCII)
    with prefix_errors(option):
        if (period := read_label(text)) is not None:
            return period
        if found := re.fullmatch(r"(\d{4})|(?:FY)?(\d{4})-(\d\d)", text, re.ASCII):
            return Period(int(found[1] or found[2]), int(found[3] or month), 0)
    # Strict, since a typing error must not become another year or period.
    raise UsageError(
        f"{option} must be a year, a month such as FY2024-03, or a period such as FY2024-Q1, not {text!r}"
        + (f": fiscal periods have no days; write FY{day[1]}" if day else period_hint(text))
    )
