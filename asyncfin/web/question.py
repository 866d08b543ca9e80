"""A visitor's query, as a form or in a URL, and the Python for the same values."""

import json
from collections.abc import Mapping, Sequence
from typing import cast
from urllib.parse import parse_qs, quote, unquote

from attrs import frozen

from asyncfin import (
    Catalogue,
    CatalogueSeries,
    FiscalRange,
    Select,
    Trailing,
    format_path,
)
from asyncfin.errors import SelectionError
from asyncfin.typing import RULES as PERIOD_RULES, PeriodSelection, Unit, ValueVersion

_RULES = {
    **{name: f"the last {rule.kind}s" for name, rule in PERIOD_RULES.items()},
    "trailing": "the last months, all durations",
    "range": "fiscal years from ... to ...",
    "all": "all periods",
}
VERSIONS = {
    "original": "as first reported",
    "latest_restated": "as last restated",
}
# The fields that have words to choose from, with their texts.
CHOICES = {
    "rule": _RULES,
    "value_version": VERSIONS,
    "unit": {
        "": "as published",
        "thousands": "thousands",
        "millions": "millions",
        "billions": "billions",
    },
}
MAX_COMPANIES = 20
MAX_SERIES = 200
MAX_SEARCH = 200
# Of a year, or of how many years, quarters or months.
MAX_NUMBER = 9_999
MAX_FIELDS = 1_000
MAX_FIELD = 4_096


@frozen
class Question:
    """A visitor's query about one company or more.

    Attributes:
        companies: their ids, the page's company first.
        series: the series, each as the text that `row_text` returns.
        rule: one of `CHOICES`, as are `value_version` and `unit`.
        last: the number of years, quarters or months.
        start, end: the fiscal years of a range, as typed.
        search: the words of the search box.
        unit: what the page divides amounts by.
    """

    companies: tuple[str, ...]
    series: tuple[str, ...] = ()
    rule: str = "annual"
    last: str = "5"
    start: str = ""
    end: str = ""
    value_version: str = "original"
    search: str = ""
    unit: str = ""

    @classmethod
    def of(cls, entity_id: str, form: Mapping[str, Sequence[str]]) -> "Question":
        """Read the fields of a form, or of a URL.

        Raises:
            SelectionError: a field has a value that it cannot have, or there is too
                much of something.
        """
        texts = {}
        for name in ("last", "start", "end", "search", *CHOICES):
            if name in form:
                texts[name] = form[name][-1].strip()
        for name, choices in CHOICES.items():
            if name in texts and texts[name] not in choices:
                words = ", ".join(filter(None, choices))
                raise SelectionError(
                    f"{name} must be one of {words}, not {texts[name][:80]!r}"
                )
        companies = tuple(dict.fromkeys([entity_id, *form.get("with", ())]))
        if len(companies) > MAX_COMPANIES:
            raise SelectionError(f"a query must have at most {MAX_COMPANIES} companies")
        if len(texts.get("search", "")) > MAX_SEARCH:
            raise SelectionError(f"a search must have at most {MAX_SEARCH} characters")
        series = tuple(dict.fromkeys(form.get("series", ())))
        count = len(series) * len(companies)
        if count > MAX_SERIES:
            raise SelectionError(
                f"a query must have at most {MAX_SERIES} series, counted for each "
                f"company, not {count:,}"
            )
        return cls(companies, series, **texts)

    @property
    def is_by_metric(self) -> bool:
        """Whether a chart has a metric of all companies, and not a company."""
        return len(self.companies) > 1

    @property
    def divisor(self) -> Unit | None:
        """What amounts are divided by."""
        return cast(Unit, self.unit) if self.unit else None

    @property
    def version(self) -> ValueVersion:
        """The value version to request."""
        return cast(ValueVersion, self.value_version)

    @property
    def select(self) -> Select:
        """The series, in every publication of every company.

        Raises:
            SelectionError: no series is selected, or one is not a row.
        """
        if not self.series:
            raise SelectionError("no series is chosen: tick one or more in the list")
        for text in self.series:
            if text.count("/") not in (2, 3):
                raise SelectionError(
                    f"series must be metric/group/path, not {text[:80]!r}"
                )
        return Select.from_json(self._json)

    @property
    def _json(self) -> str:
        rows = list(map(_split, self.series))
        return json.dumps({"series": rows}, ensure_ascii=False)

    def find_series(self, catalogue: Catalogue) -> dict[str, CatalogueSeries]:
        """The selected series that a catalogue has, by their texts in the question."""
        series_by_text = {}
        for text in self.series:
            parts = _split(text)
            for series in catalogue.by_metric.get(parts[0], ()):
                row = _list_ids(catalogue, series)
                if row == parts[: len(row)]:
                    series_by_text[text] = series
        return series_by_text

    @property
    def periods(self) -> PeriodSelection:
        """The periods to read.

        Raises:
            SelectionError: a number is missing or wrong.
        """
        match self.rule:
            case "trailing":
                return Trailing(_read_whole("how many months", self.last))
            case "range":
                start = end = None
                if self.start.strip():
                    start = (_read_whole("the first fiscal year", self.start), 1)
                if self.end.strip():
                    end = (_read_whole("the last fiscal year", self.end), 12)
                return FiscalRange(start, end)
            case "all":
                return FiscalRange()
        rule = PERIOD_RULES[self.rule]
        noun = rule.kind.split()[-1]
        return rule(last=_read_whole(f"how many {noun}s", self.last))

    def resolve(self, catalogues: Sequence[Catalogue]) -> PeriodSelection:
        """The periods; of two or more companies the same ones for all of them.

        Raises:
            SelectionError: as for `periods`, or no company has such periods.
        """
        periods = self.periods
        # A trailing window ends with the last value of one company.
        if len(self.companies) == 1 or isinstance(periods, Trailing):
            return periods
        return periods.resolve(catalogues)

    @property
    def python(self) -> str:
        """A program that requests and prints the same. It contains no token."""
        names = ", ".join(sorted(["Client", "Select", type(self.periods).__name__]))
        # As Python writes them: ids come from a form, and nothing of it may become
        # code.
        read = f"compare({list(self.companies)!r}, select, periods"
        if len(self.companies) == 1:
            read = f"query({self.companies[0]!r}, select, periods"
        return f"""\
import asyncio

from asyncfin import {names}

select = Select.from_json(
    {self._json!r}
)
periods = {self.periods!r}

async def main():
    async with Client.from_env() as client:
        result = await client.{read}, value_version={self.value_version!r})
        print(result.show())

asyncio.run(main())
"""


def row_text(catalogue: Catalogue, series: CatalogueSeries) -> str:
    """The text that selects a series in every publication: metric/group/path.

    The series id follows where the catalogue has two series of that triple.
    """
    parts = []
    for text in _list_ids(catalogue, series):
        part = quote(text, safe="=|, ")
        parts.append(part)
    return "/".join(parts)


def _list_ids(catalogue: Catalogue, series: CatalogueSeries) -> list[str]:
    metric_id, group_id, path = (
        series.metric_id,
        series.reporting_group_id,
        series.scopes,
    )
    ids = [metric_id, group_id, format_path(path)]
    if len(catalogue.by_triple[metric_id, group_id, path]) > 1:
        ids.append(series.series_id)
    return ids


def _split(text: str) -> list[str]:
    return list(map(unquote, text.split("/")))


def _read_whole(name: str, text: str) -> int:
    # Python does not read numbers of thousands of digits.
    digits = text.strip()
    if digits.isascii() and digits.isdigit() and len(text) < 10:
        number = int(digits)
        if 1 <= number <= MAX_NUMBER:
            return number
    raise SelectionError(
        f"{name} must be a whole number from 1 to {MAX_NUMBER:,}, not {text[:20]!r}"
    )


def fields_of(text: str) -> dict[str, list[str]]:
    """Read the fields of a form or of a URL's query.

    Raises:
        SelectionError: there are too many, or one is too long.
    """
    # Counted before they are parsed, which takes its time.
    count = text.count("&") + 1
    if count > MAX_FIELDS:
        raise SelectionError(
            f"a form must have at most {MAX_FIELDS:,} fields, not {count:,}"
        )
    form = parse_qs(text, keep_blank_values=True)
    for name, values in form.items():
        if max(map(len, [name, *values])) > MAX_FIELD:
            raise SelectionError(
                f"{name[:80]} must have at most {MAX_FIELD:,} characters"
            )
    return form
