"""The options that commands share, their checks, and what they mean."""

import csv
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

from attrs import asdict, frozen
from cyclopts import Group, Parameter, Token

from asyncfin.checks import check_entity_id, expand_user
from asyncfin.cli.errors import SELECT_OPTIONS, UsageError, prefix_errors
from asyncfin.errors import SelectionError
from asyncfin.optional import library
from asyncfin.words import Unit, either

if TYPE_CHECKING:
    from asyncfin import Select
    from asyncfin.typing import Bound, Names as NameTable, PeriodSelection

Texts = tuple[str, ...]
AsJson = Annotated[bool, Parameter(name="--json", help="Print JSON instead.")]
STDIN = Path("-")

_ENTITIES = Group("Which entities", sort_key=0)
_SERIES = Group(
    "Which series (each option narrows; repeat one for any of several)", sort_key=1
)
period_group = Group("Which periods (all of them if none is named)", sort_key=2)
_SERVICE = Group("Service", sort_key=3)
_PACE = Group("Pace", sort_key=4)


def parse_whole(_: Any, tokens: Iterable[Token]) -> int:
    """Return the whole number of an option: cyclopts would take 1.5 for 1."""
    *_, token = tokens
    if not re.fullmatch(r"[+-]?\d+", token.value, re.ASCII):
        raise ValueError(f"{token.value!r} is not a whole number, such as 5")
    return int(token.value)


Whole = Annotated[int | None, Parameter(converter=parse_whole)]
# A file of entity ids; the one of input may be standard input.
IdsFile = Annotated[Path | None, Parameter(group=_ENTITIES)]
IdsInput = Annotated[Path | None, Parameter(allow_leading_hyphen=True, group=_ENTITIES)]
IsRestated = Annotated[bool, Parameter(name="--restated")]


def has_path(path: str, *, folder: bool) -> bool:
    """Return whether there is a file or folder, or a folder; ~ is the user's."""
    return (os.path.isdir if folder else os.path.exists)(expand_user(path))


@contextmanager
def open_text(path: Path, label: str, advice: str) -> Iterator[TextIO]:
    """Open a text file or standard input, named by a label in errors. Reading
    blocks.
    """
    try:
        # Not sys.stdin, which decodes by the locale, and is None if standard input is
        # closed.
        source = 0 if path == STDIN else expand_user(str(path))
        with open(source, encoding="utf-8-sig", closefd=source != 0) as file:
            yield file
    except OSError as error:
        reason = error.strerror
    except UnicodeDecodeError:
        reason = "it is not text"
    except csv.Error:
        reason = "it is not a CSV file"
    else:
        return
    raise UsageError(f"{label} can't be read ({reason}): {advice}")


def require(name: str, extra: str, label: str) -> None:
    """Reject, before a request is spent, what needs a module that is not installed."""
    try:
        library(name, extra)
    except ImportError as error:
        raise UsageError(f"{label} needs more: {error}") from None


def require_place(place: str, label: str) -> None:
    """Reject a place of an extraction without the library that reads or writes
    there.
    """
    from asyncfin.extraction.place import Folder
    from asyncfin.extraction.places import place_of

    require("pyarrow.parquet", "arrow", label)
    if not isinstance(place_of(place), Folder):
        require("obstore", "store", place)


def choose_one(options: Mapping[str, bool]) -> str | None:
    """Return the only option that is set, if any; reject two or more."""
    names = [name for name, flag in options.items() if flag]
    if len(names) > 1:
        raise UsageError(f"{' and '.join(names)} exclude each other: choose one")
    return names[0] if names else None


@Parameter(name="*", group=_SERIES)
@frozen(kw_only=True)
class Selection:
    """Which series.

    Args:
        metric: A metric id.
        group: A reporting group id.
        scope: A scope path: group=scope|group=scope.
        scope_group: Paths of exactly these scope groups.
        basis: A reporting basis, such as segment.
        cadence: A reporting cadence, such as annual.
        period_meaning: A period meaning, such as over_period.
        series: A series id, as `catalogue --csv` and results contain it.
    """

    metric: Texts = ()
    group: Texts = ()
    scope: Texts = ()
    scope_group: Texts = ()
    basis: Texts = ()
    cadence: Texts = ()
    period_meaning: Texts = ()
    series: Texts = ()

    def select(self) -> "Select":
        """Return the Select that the options describe."""
        from asyncfin import Select

        values = {name: texts or None for name, texts in asdict(self).items()}
        return Select(
            **{name: values[option] for name, option in SELECT_OPTIONS.items()}
        )


@Parameter(name="*", group=period_group)
@frozen(kw_only=True)
class Periods:
    """Which periods.

    Args:
        annual: Fiscal years.
        quarterly: Periods of three months.
        half_yearly: Periods of six months.
        exact: A period: FY2024, FY2024-Q3, FY2024-H1, FY2024-9M; repeatable.
        trailing: All periods that end in the last N months, up to the latest value.
        first: The first fiscal end: a year, FY2024-03, or a period.
        final: The last fiscal end, in the same forms.
        last: Only this many, the latest ones, with --annual, --quarterly or
            --half-yearly.
    """

    annual: bool = False
    quarterly: bool = False
    half_yearly: bool = False
    exact: Texts = ()
    trailing: Whole = None
    first: Annotated[str | None, Parameter(name="--from")] = None
    final: Annotated[str | None, Parameter(name="--to")] = None
    last: Whole = None

    def selection(self) -> "PeriodSelection":
        """Return the period selection that the options describe."""
        from asyncfin import (
            Annual,
            Exact,
            FiscalRange,
            HalfYearly,
            Quarterly,
            Trailing,
        )

        rules = {
            "--annual": Annual,
            "--quarterly": Quarterly,
            "--half-yearly": HalfYearly,
        }
        mode = choose_one(
            {
                "--annual": self.annual,
                "--quarterly": self.quarterly,
                "--half-yearly": self.half_yearly,
                "--exact": bool(self.exact),
                "--trailing": self.trailing is not None,
            }
        )
        # Options that have no meaning in this mode.
        if self.last is not None and mode not in rules:
            raise UsageError(f"--last goes with {either(list(rules))}: add one of them")
        if mode in ("--exact", "--trailing") and (self.first or self.final):
            raise UsageError(f"{mode} takes neither --from nor --to: leave them out")
        start, end = _parse_bound(self.first, 1), _parse_bound(self.final, 12)
        if mode in rules:
            return rules[mode](start, end, self.last)
        if self.trailing is not None:
            return Trailing(self.trailing)
        return Exact(self.exact) if self.exact else FiscalRange(start, end)


def _parse_bound(text: str | None, month: int) -> "Bound | None":
    """Return the fiscal end of a year or month, a period as the text itself; `month`
    completes a year.
    """
    match = re.fullmatch(r"(\d{4})|(?:FY)?(\d{4})-(\d\d)", text or "", re.ASCII)
    if match is None:
        return text
    return int(match[1] or match[2]), int(match[3] or month)


@Parameter(name="*")
@frozen(kw_only=True)
class Form:
    """A form that a program reads, in place of a table for people.

    Args:
        json: Print JSON instead.
        csv: Print comma-separated lines. Texts like formulas get a leading apostrophe.
    """

    json: bool = False
    csv: bool = False

    def __attrs_post_init__(self) -> None:
        choose_one(self.options())

    def options(self) -> dict[str, bool]:
        """Return the options that exclude each other, and whether each is set."""
        return {"--json": self.json, "--csv": self.csv}


@Parameter(name="*")
@frozen(kw_only=True)
class QueryForm(Form):
    """The form of what a query returns.

    Args:
        empty: Show series without a value too, in the table and in CSV.
        unit: Divide the amounts of the table.
        explain: Print only the plan of one entity: series, batches, requests. Reads the
            catalogue, sends no query.
    """

    empty: Annotated[bool, Parameter(name="--all")] = False
    unit: Unit | None = None
    explain: bool = False

    def __attrs_post_init__(self) -> None:
        choose_one(self.options() | {"--unit": self.unit is not None})

    def options(self) -> dict[str, bool]:
        return super().options() | {"--explain": self.explain}


_ID = re.compile(r"O-\w{32}", re.ASCII)
# Where there is no file of names.
_NO_NAMES = (
    ": give its id, O- and 32 characters, or a file of names by --names or "
    "ASYNCFIN_NAMES (`asyncfin names` writes one)"
)


# Not slotted, for the cached property.
@Parameter(name="*", group=_ENTITIES)
@frozen(kw_only=True, slots=False)
class Names:
    """The option of the file of names, and the names in it.

    Args:
        names: A CSV file of names for entity ids: id, name, aliases (separated by |).
    """

    names: Annotated[Path | None, Parameter(env_var="ASYNCFIN_NAMES")] = None

    @cached_property
    def table(self) -> "NameTable":
        """The names of the file. An empty variable, which is Path(""), is no file."""
        # Here, since help needs no names.
        from asyncfin.names import Names as Table, read_names

        if self.names in (None, Path()):
            return Table([])
        with prefix_errors("--names"):
            return read_names(self.names)

    def entity_ids(self, texts: Iterable[str], ids: Path | None = None) -> list[str]:
        """Return the distinct entity ids for names or ids, and those of a file of ids.

        Raises:
            UsageError: one is neither, or the name of several entities.
        """
        try:
            entity_ids = list(self.table.ids(tuple(texts)))
        except SelectionError as error:
            advice = "" if self.table else _NO_NAMES
            raise UsageError(f"{error.problem}{advice}") from None
        with prefix_errors("entity"):
            for entity_id in entity_ids:
                check_entity_id(entity_id)
        if ids is not None:
            entity_ids += self._read_ids(ids)
        return list(dict.fromkeys(entity_ids))

    def _read_ids(self, path: Path) -> list[str]:
        """Return the entity ids of a file of ids or names, one per line; # begins a
        comment.
        """
        label = f"--ids {path}"
        entity_ids: list[str] = []
        with open_text(path, label, "give a file of entity ids, one per line") as file:
            lines = list(file)
        for number, line in enumerate(lines, 1):
            text = line.partition("#")[0].strip()
            try:
                entity_ids += self.entity_ids(filter(None, [text]))
            except UsageError as error:
                raise UsageError(f"{label}, line {number}: {error}") from None
        if not entity_ids:
            raise UsageError(f"{label} contains no entity ids (one per line)")
        return entity_ids

    def require_ids(self, texts: Iterable[str], ids: Path | None = None) -> list[str]:
        """As `entity_ids`, and at least one."""
        if entity_ids := self.entity_ids(texts, ids):
            return entity_ids
        raise UsageError("no entity is given: give entity ids or names")

    def offer(
        self, texts: Iterable[str], ids: Path | None, *, may_be_none: bool = False
    ) -> dict[str, str]:
        """Return the names, or "", of the entities that arguments and a file of ids
        name, or else of all that have a name.
        """
        entity_ids = self.entity_ids(texts, ids) or self.table
        if not entity_ids and not may_be_none:
            raise UsageError(
                "no company is on offer: give entity ids, --ids FILE or --names FILE"
            )
        return {entity_id: self.table.get(entity_id, "") for entity_id in entity_ids}

    def add_names(self, text: str) -> str:
        """Return a text with a name before each entity id that has one."""

        def add_name(match: re.Match[str]) -> str:
            name = self.table.get(match[0])
            return match[0] if name is None else f"{name} ({match[0]})"

        return _ID.sub(add_name, text)


@Parameter(name="*", group=_SERVICE)
@frozen(kw_only=True, slots=False)
class Service:
    """Where the service is, and the access token for it.

    Args:
        base_url: The service's address.
        token_file: A file with the access token, read again when it is rejected; - for
            standard input. [else: ASYNCFIN_TOKEN]
        allow_http: Accept an http address of another machine: the token is sent
            unencrypted.
    """

    base_url: Annotated[str | None, Parameter(env_var="ASYNCFIN_BASE_URL")] = None
    token_file: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None
    allow_http: bool = False

    def __attrs_post_init__(self) -> None:
        # Read here and not in the event loop, where Ctrl-C would not end a wait for
        # standard input.
        if self.token_file is not None:
            _ = self._token_of_file

    @cached_property
    def _token_of_file(self) -> str:
        assert self.token_file is not None
        # The path is not printed: it may be the token itself, given in the wrong place.
        advice = "give a file that contains the token"
        with open_text(self.token_file, "--token-file", advice) as file:
            # The first line alone, without its end: editors add one.
            return file.readline().strip()

    @property
    def token(self) -> str:
        """The access token; UsageError if there is none."""
        token = os.environ.get("ASYNCFIN_TOKEN", "")
        if self.token_file is not None:
            token = self._token_of_file
        if not token and self.token_file is not None:
            raise UsageError(
                f"--token-file {self.token_file} is empty: its first line is the token"
            )
        if not token:
            raise UsageError(
                "there is no access token: set ASYNCFIN_TOKEN or give --token-file FILE"
            )
        return token

    @property
    def address(self) -> str:
        """The base URL; UsageError if there is none."""
        if not self.base_url:
            raise UsageError(
                "no service is given: set ASYNCFIN_BASE_URL or give --base-url"
                " (`asyncfin sandbox` starts one here)"
            )
        return self.base_url

    def check(self) -> None:
        """Raise UsageError without an address or a token, before the client is
        imported.
        """
        _ = self.address, self.token


@Parameter(name="*", group=_PACE)
@frozen(kw_only=True)
class Pace:
    """How fast requests are sent.

    Args:
        rate: Requests a second. [learned from rejections if left out]
        daily_budget: Requests that this command may send in a day, UTC.
        max_in_flight: Requests in flight at once, and entities.
    """

    rate: float | None = None
    daily_budget: Whole = None
    max_in_flight: Annotated[
        int, Parameter(converter=parse_whole, show_default=True)
    ] = 8
