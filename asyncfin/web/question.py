"""A visitor's question, as a form or in a URL, and the Python for the same panel."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import get_args
from urllib.parse import parse_qs, quote, unquote

from attrs import frozen

from asyncfin import Panel, typing
from asyncfin.errors import SelectionError
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.query import ValueVersion
from asyncfin.model.select import Select
from asyncfin.model.selection import (
    Exact,
    FiscalRange,
    PeriodSelection,
    Trailing,
)
from asyncfin.model.series import CatalogueSeries
from asyncfin.web.views import (
    ORDERS,
    SCALES,
    UNITS,
    VERSIONS,
    VIEWS,
    series_of,
    year_before,
)
from asyncfin.words import Unit

RULES = {
    **{name: f"the last {rule.kind}s" for name, rule in typing.RULES.items()},
    "trailing": "the last months, all durations",
    "range": "fiscal years from ... to ...",
    "all": "all periods",
}
MAX_COMPANIES = 20
MAX_SERIES = 200
MAX_SEARCH = 200
MAX_FIELDS = 1_000
MAX_FIELD = 4_096


@frozen
class Question:
    """A visitor's question about one or several companies.

    Attributes:
        companies: their ids, the page's company first.
        series: the series, each as the text that `row_text` returns, or as a series id
            of the first company.
        rule: one of `RULES`.
        last: the number of years, quarters or months.
        start, end: the fiscal years of a range, as typed; empty: the first and last of
            the catalogues.
        value_version: one of `VERSIONS`.
        search: the words of the search box.
        view, scale, unit, order: how the page shows the values: of `VIEWS`, `SCALES`,
            `UNITS` and `ORDERS`.
        over: what the view `ratio` divides by, one of `series`.
    """

    companies: tuple[str, ...]
    series: tuple[str, ...] = ()
    rule: str = "annual"
    last: str = "5"
    start: str = ""
    end: str = ""
    value_version: str = "original"
    search: str = ""
    view: str = "values"
    scale: str = "linear"
    unit: str = ""
    order: str = ""
    over: str = ""

    @classmethod
    def of(cls, entity_id: str, form: Mapping[str, Sequence[str]]) -> "Question":
        """Return the question of a form's fields, or of a URL's.

        Raises:
            SelectionError: a field has a value that it cannot have, or there is too
                much of something.
        """

        def text(name: str, default: str = "") -> str:
            return form.get(name, [default])[-1]

        def one_of(name: str, known: Mapping[str, str]) -> str:
            given = text(name, next(iter(known)))
            if given not in known:
                words = ", ".join(filter(None, known))
                raise SelectionError(
                    f"{name} must be one of {words}, not {given[:80]!r}"
                )
            return given

        companies = tuple(dict.fromkeys([entity_id, *form.get("with", ())]))
        if len(companies) > MAX_COMPANIES:
            raise SelectionError(
                f"a question must have at most {MAX_COMPANIES} companies"
            )
        if len(search := text("search")) > MAX_SEARCH:
            raise SelectionError(f"a search must have at most {MAX_SEARCH} characters")
        series = tuple(dict.fromkeys(form.get("series", ())))
        if (count := len(series) * len(companies)) > MAX_SERIES:
            raise SelectionError(
                f"a question must have at most {MAX_SERIES} series, counted for each "
                f"company, not {count:,}"
            )
        return cls(
            companies,
            series,
            text("rule", "annual"),
            text("last", "5"),
            text("start"),
            text("end"),
            one_of("value_version", VERSIONS),
            search.strip(),
            one_of("view", VIEWS),
            one_of("scale", SCALES),
            one_of("unit", UNITS),
            one_of("order", ORDERS),
            text("over"),
        )

    @property
    def ordered(self) -> str:
        """What a chart is made of: ``"metric"`` or ``"company"``; of several companies
        each metric.
        """
        return self.order or ("metric" if len(self.companies) > 1 else "company")

    @property
    def is_log(self) -> bool:
        """Whether the scale is logarithmic; growth has losses, so its scale is
        linear.
        """
        return self.scale == "log" and self.view != "growth"

    @property
    def divided_by(self) -> Unit | None:
        """What amounts of the view ``values`` are divided by."""
        return next((unit for unit in get_args(Unit) if unit == self.unit), None)

    def divisor(self, catalogue: Catalogue) -> list[str]:
        """Return the row of what a ratio divides by, given the catalogue of the first
        company.
        """
        return _row(self.over, catalogue)

    def check_view(self) -> None:
        """Raise unless the page can show the values in this view.

        Raises:
            SelectionError: a ratio has nothing to divide, or nothing to divide by.
        """
        if self.view == "ratio" and self.over not in self.series:
            raise SelectionError(
                "choose what to divide by: one of the selected series"
                if not self.over
                else f"choose what to divide by: {self.over[:80]!r} is not one of the "
                "selected series"
            )
        if self.view == "ratio" and len(self.series) < 2:
            raise SelectionError("choose a series besides the one to divide by")

    @property
    def versions(self) -> tuple[ValueVersion, ...]:
        """The value versions to request."""
        match self.value_version:
            case "both":
                return ("original", "latest_restated")
            case "latest_restated":
                return ("latest_restated",)
        return ("original",)

    def select(self, catalogue: Catalogue) -> Select:
        """Return the Select of the series, given the catalogue of the first company.

        Raises:
            SelectionError: no series is selected, or one is neither an id nor a row.
        """
        if not self.series:
            raise SelectionError("no series is chosen: tick one or more in the list")
        return Select.from_json(self._json(catalogue))

    def _json(self, catalogue: Catalogue) -> str:
        return json.dumps({"series": self._rows(catalogue)}, ensure_ascii=False)

    def _rows(self, catalogue: Catalogue) -> list[list[str]]:
        return [_row(text, catalogue) for text in self.series]

    def triples(self, catalogue: Catalogue) -> list[tuple[str, str, str]]:
        """Return the metric, group and path of each series, given the catalogue of the
        first company.
        """
        return [
            (metric, group, path) for metric, group, path, *_ in self._rows(catalogue)
        ]

    def words(self, catalogues: Sequence[Catalogue]) -> dict[str, str]:
        """Return the label, scope path and group of each series, by what
        `Comparison.missing` names it with.

        Args:
            catalogues: those of the companies that could be read, in the order of the
                question.
        """
        words: dict[str, str] = {}
        for wanted in self.select(catalogues[0]).picked or ():
            for catalogue in catalogues:
                triple = wanted.metric_id, wanted.reporting_group_id, wanted.scopes
                for series in catalogue.by_triple.get(triple, ()):
                    if wanted.series_id in (None, series.series_id):
                        scopes = catalogue.scope_names(series.scopes)
                        group = catalogue.by_group[series.reporting_group_id].name
                        text = f"{series.label} ({', '.join([*scopes, group])})"
                        words.setdefault(str(wanted), text)
                        words.setdefault(series.series_id, text)
        return words

    def chosen(self, catalogue: Catalogue) -> dict[str, CatalogueSeries]:
        """Return the selected series that a catalogue has, by the texts of their
        rows.
        """
        found = (self._series(text, catalogue) for text in self.series)
        return {row_text(catalogue, each): each for each in found if each is not None}

    def divisors(self, catalogues: Iterable[Catalogue]) -> list[tuple[str, str, bool]]:
        """Return what a ratio can divide by: the row of each series, its name, and
        whether it is `over`.

        Series of one label have their group and scopes behind it.
        """
        options = []
        for text in self.series:
            for catalogue in catalogues:
                if (series := self._series(text, catalogue)) is not None:
                    place = ", ".join(
                        [
                            catalogue.by_group[series.reporting_group_id].name,
                            " / ".join(catalogue.scope_names(series.scopes)),
                        ]
                    )
                    options.append(
                        (
                            row_text(catalogue, series),
                            series.label,
                            place,
                            text == self.over,
                        )
                    )
                    break
        times = Counter(label for _, label, _, _ in options)
        return [
            (row, f"{label}: {place}" if times[label] > 1 else label, is_over)
            for row, label, place, is_over in options
        ]

    def _series(self, text: str, catalogue: Catalogue) -> CatalogueSeries | None:
        if text in catalogue:
            return catalogue[text]
        return None if (row := row_of(text)) is None else series_of(catalogue, row)

    def resolved(self, catalogues: Sequence[Catalogue]) -> PeriodSelection:
        """Return the periods; of several companies the same ones for all of them.

        Raises:
            SelectionError: as for `periods`, or no company has such periods.
        """
        periods = self.periods
        # A trailing window ends with the last value of one company.
        if len(catalogues) == 1 or isinstance(periods, Trailing):
            return periods
        return periods.resolve(catalogues)

    def to_read(self, catalogues: Sequence[Catalogue]) -> PeriodSelection:
        """Return the periods to read for `resolved`; for growth also those of a year
        before, at no request.

        Raises:
            SelectionError: as for `resolved`.
        """
        periods = self.resolved(catalogues)
        if self.view != "growth":
            return periods
        match periods:
            case Trailing(months=months):
                return Trailing(months + 12)
            case FiscalRange(start=start, end=end):
                if start is None or start.year == 1:
                    return periods
                return FiscalRange((start.year - 1, start.end_month), end)
        wanted = periods.resolve(catalogues).periods
        known = {period for catalogue in catalogues for period in catalogue.periods}
        before = {each for period in wanted if (each := year_before(period)) in known}
        return Exact(sorted({*wanted, *before}))

    def shown_of(self, panel: Panel, catalogues: Sequence[Catalogue]) -> Panel:
        """Return the part of a panel that was read which the page shows."""
        if self.view != "growth":
            return panel
        match periods := self.resolved(catalogues):
            case Trailing(months=months):
                if panel.anchor is None:
                    return panel
                first = panel.anchor.fiscal_end - months
                return panel.during(
                    [each for each in panel.periods if each.fiscal_end > first]
                )
            case FiscalRange():
                return panel.during(periods)
        return panel.during(periods.resolve(catalogues))

    @property
    def periods(self) -> PeriodSelection:
        """The rule for the periods.

        Raises:
            SelectionError: a number is missing or wrong, or the rule is unknown.
        """
        match self.rule:
            case "trailing":
                return Trailing(_whole("how many months", self.last))
            case "range":
                start = (
                    (_whole("the first fiscal year", self.start), 1)
                    if self.start.strip()
                    else None
                )
                end = (
                    (_whole("the last fiscal year", self.end), 12)
                    if self.end.strip()
                    else None
                )
                return FiscalRange(start, end)
            case "all":
                return FiscalRange()
        if self.rule not in RULES:
            choose = ", ".join(RULES)
            raise SelectionError(
                f"there is no period rule {self.rule[:80]!r}: choose one of {choose}"
            )
        rule = typing.RULES[self.rule]
        noun = rule.kind.split()[-1]
        return rule(last=_whole(f"how many {noun}s", self.last))

    def python(self, catalogue: Catalogue) -> str:
        """Return a program that requests the same and prints the same texts. It
        contains no token.

        Args:
            catalogue: of the first company.
        """
        rule = repr(self.periods)
        names = ", ".join(sorted(["Client", "Select", type(self.periods).__name__]))
        select = f"select = Select.from_json(\n    {self._json(catalogue)!r}\n)"
        if len(self.companies) == 1:
            entity_id = self.companies[0]
            body = "".join(
                f"""
        panel = await client.query({entity_id!r}, select, {rule}{_version(each)})
        print("", *panel.periods, sep="\\t")
        for series in panel:
            print(series.series_id, *(value.text if value else "" for value in series.values), sep="\\t")"""
                for each in self.versions
            )
        else:
            # As Python writes them: ids come from a form, and nothing of it may become
            # code.
            entities = "".join(f"\n            {each!r}," for each in self.companies)
            resolve = "" if self.rule == "trailing" else ".resolve(catalogues)"
            read = (
                "\n        catalogues = [await client.catalogue(each) for each in "
                "entities]"
                if resolve
                else ""
            )
            body = f"""
        entities = [{entities}
        ]{read}
        periods = {rule}{resolve}"""
            body += "".join(
                f"""
        async with client.query_many(entities, select, periods{_version(each)}) as answers:
            async for answer in answers:
                print(answer.error or answer.panel)"""
                for each in self.versions
            )
        return f"""import asyncio
from asyncfin import {names}

{select}

async def main():
    async with Client.from_env() as client:{body}

asyncio.run(main())
"""


def problem_of(error: SelectionError) -> str:
    """Return an error's text with what to choose on the page, instead of Python."""
    match error.instead:
        case FiscalRange(start=None, end=None):
            return f'{error.problem}; choose "{RULES["all"]}"'
        case typing.Rule(start=None, end=None, name=name, last=int(last)):
            return f'{error.problem}; choose "{RULES[name]}", {last}'
        case Trailing(months=months):
            return f'{error.problem}; choose "{RULES["trailing"]}", {months}'
    return error.problem


def row_text(catalogue: Catalogue, series: CatalogueSeries) -> str:
    """Return the text that selects a series in every publication: metric/group/path.

    The series id follows where the catalogue has several series of that triple.
    """
    parts = [series.metric_id, series.reporting_group_id, series.scope_path]
    triple = series.metric_id, series.reporting_group_id, series.scopes
    if len(catalogue.by_triple[triple]) > 1:
        parts.append(series.series_id)
    return "/".join(quote(each, safe="=|, ") for each in parts)


def row_of(text: str) -> list[str] | None:
    """Return the metric, group and path of such a text, and maybe the series id; None:
    it is not one.
    """
    parts = [unquote(each) for each in text.split("/")]
    return parts if len(parts) in (3, 4) else None


def _row(text: str, catalogue: Catalogue) -> list[str]:
    if text in catalogue:
        text = row_text(catalogue, catalogue[text])
    if (row := row_of(text)) is None:
        raise SelectionError(f"series must be metric/group/path, not {text[:80]!r}")
    return row


def _version(value_version: str) -> str:
    return "" if value_version == "original" else f", value_version={value_version!r}"


def _whole(name: str, text: str) -> int:
    # Python refuses to read numbers of thousands of digits, and no year or count has
    # ten.
    if not (
        text.strip().isascii()
        and text.strip().isdigit()
        and len(text) < 10
        and int(text)
    ):
        raise SelectionError(
            f"{name} must be a whole number from 1, of at most nine digits, not "
            f"{text[:20]!r}"
        )
    return int(text)


def fields_of(text: str) -> dict[str, list[str]]:
    """Return the fields of a form or of a URL's query.

    Raises:
        SelectionError: there are too many, or one is too long.
    """
    # Counted before they are parsed, which takes its time.
    if (count := text.count("&") + 1) > MAX_FIELDS:
        raise SelectionError(
            f"a form must have at most {MAX_FIELDS:,} fields, not {count:,}"
        )
    form = parse_qs(text, keep_blank_values=True)
    for name, values in form.items():
        if len(name) > MAX_FIELD or any(len(value) > MAX_FIELD for value in values):
            raise SelectionError(
                f"{name[:80]} must have at most {MAX_FIELD:,} characters"
            )
    return form
