"""What the explorer's page must show of a question, by plain code over the results of `Client.query`."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from fractions import Fraction
from itertools import groupby
from typing import Any, Literal

from attrs import field, frozen

from asyncfin import Catalogue, Client, Exact, FiscalRange, Panel, Period, Select, Trailing
from asyncfin.errors import printable
from asyncfin.model.scope import format_path
from asyncfin.model.value import Value

Version = Literal["original", "latest_restated"]
VERSIONS: Mapping[str, tuple[Version, ...]] = {
    "original": ("original",),
    "latest_restated": ("latest_restated",),
    "both": ("original", "latest_restated"),
}
WORDS = {"original": "as first reported", "latest_restated": "as last restated"}
POWERS = {"thousands": 3, "millions": 6, "billions": 9}
MOST_COLUMNS, MOST_ROWS, MOST_LINES, MOST_CHARTS = 120, 200, 12, 12


@frozen
class Drawn:
    """A question that was drawn at random.

    Attributes:
        companies: entity ids.
        series: metric, group and scope path of each, and the series id where these are not enough.
        periods: the rule, as the library has it; `fields` is the same as the form has it.
        over: the place in `series` of what a ratio divides by.
    """

    companies: tuple[str, ...]
    series: tuple[tuple[str, ...], ...]
    periods: Any
    fields: Mapping[str, str]
    value_version: str
    view: str
    over: int
    unit: str
    scale: str
    order: str

    @property
    def by_metric(self) -> bool:
        return self.order == "metric" or (self.order == "" and len(self.companies) > 1)


@frozen
class Cell:
    """What a cell must show: one of some texts (an exact tie may be rounded either way), and a number."""

    texts: frozenset[str]
    number: Fraction | None = None


def just(text: str, number: Fraction | None = None) -> Cell:
    return Cell(frozenset([text]), number)


@frozen(eq=False)
class Row:
    """A series of a company in a value version, with what it is called."""

    panel: Panel = field(repr=False)
    every: Mapping[Period, Value] = field(repr=False)
    shown: Mapping[Period, Value] = field(repr=False)
    over: Mapping[Period, Value] | None = field(repr=False)
    series: Any
    names: tuple[str, str, str, str, str, str]
    description: str

    @property
    def company(self) -> str:
        return self.names[0]

    @property
    def label(self) -> str:
        return self.names[1]


@frozen
class Answers:
    """What the library returns for a question: the rows, and the companies that have none of the series."""

    question: Drawn
    rows: Sequence[Row]
    panels: Sequence[Panel]
    over_label: str

    @property
    def periods(self) -> list[Period]:
        """The columns of the table."""
        shown = {id(row.panel) for row in self.rows}
        panels = [panel for panel in self.panels if id(panel) in shown]
        return sorted({period for panel in panels for period in (*panel.periods, *gaps_shown(panel))})


def gaps_shown(panel: Panel) -> Iterator[Period]:
    """Yield the gaps of a panel, but those of more than 40 in a row."""
    gaps = set(panel.gaps)
    for months in {each.duration_months for each in gaps}:
        ends = sorted(each for each in {*panel.periods, *gaps} if each.duration_months == months)
        for is_gap, run in groupby(ends, gaps.__contains__):
            found = list(run)
            if is_gap and len(found) <= 40:
                yield from found


async def answers(client: Client, question: Drawn) -> Answers | None:
    """Return what `Client.query` returns for each company and version; None: no company has a series."""
    catalogues = [await client.catalogue(each) for each in question.companies]
    periods = question.periods
    if len(catalogues) > 1 and not isinstance(periods, Trailing):
        periods = periods.resolve(catalogues)
    rows: list[Row] = []
    panels: list[Panel] = []
    over_label = ""
    for catalogue in catalogues:
        found = [found_in(catalogue, each) for each in question.series]
        having = [each for each in found if each is not None]
        if not having:
            continue
        for version in VERSIONS[question.value_version]:
            select = Select.of(having)
            if isinstance(periods, Exact) and not set(periods.periods).intersection(catalogue.periods):
                continue  # alone, such a question is refused: a note says so
            panel = await client.query(catalogue.entity_id, select, periods, value_version=version)
            every = await client.query(catalogue.entity_id, select, FiscalRange(), value_version=version)
            panels.append(panel)
            divisor = found[question.over] if question.view == "ratio" else None
            if divisor is not None:
                over_label = over_label or divisor.label
            for series in panel:
                if divisor is not None and series.series_id == divisor.series_id:
                    continue
                rows.append(row_of(panel, every, series, divisor))
    return Answers(question, rows, panels, over_label) if panels else None


def found_in(catalogue: Catalogue, wanted: Sequence[str]) -> Any:
    """Return the series that a row of the form means in a company, or None."""
    for series in catalogue:
        named = (series.metric_id, series.reporting_group_id, format_path(series.scopes))
        if named == tuple(wanted[:3]) and wanted[3:] in ((), (series.series_id,)):
            return series
    return None


def row_of(panel: Panel, every: Panel, series: Any, divisor: Any) -> Row:
    catalogue = panel.catalogue
    listed = catalogue[series.series_id]
    (group,) = (each for each in catalogue.groups if each.reporting_group_id == series.reporting_group_id)
    scopes = " / ".join(catalogue.scope_names(series.scopes))
    company, label, scopes, name, description = (
        printable(each)
        for each in (
            catalogue.name,
            series.label,
            scopes,
            group.name,
            "" if listed.description == series.label else listed.description,
        )
    )
    names = (company, label, scopes, name, WORDS[panel.value_version], series.series_id)
    return Row(
        panel,
        dict(every[series.series_id].observations()),
        dict(series.observations()),
        None if divisor is None else dict(every[divisor.series_id].observations()),
        series,
        names,
        description,
    )


@frozen
class Group:
    """The rows of a chart."""

    answers: Answers
    rows: Sequence[Row]

    @property
    def view(self) -> str:
        return self.answers.question.view

    def cell(self, row: Row, period: Period) -> Cell:
        value = row.shown.get(period)
        if value is None:
            was_asked = period in row.panel.periods_asked or period not in row.panel.catalogue.periods
            if not was_asked:
                # For growth the year before was read too, so it is known of some that they have no value.
                known = {""} if self.view == "growth" and period not in row.every else set()
                return Cell(frozenset({"?", *known}))
            return just("·" if self.view in ("values", "index") else "")
        number = Fraction(value.number)
        if self.view == "growth":
            return growth(number, row.every.get(Period(period.year - 1, *period_rest(period))))
        if self.view == "index":
            return self.index(row, period, number)
        if self.view == "ratio":
            return self.ratio(row, period, number)
        text, _, number = in_unit(value, row.shown.values(), self.answers.question.unit)
        return just(text, number)

    def reading(self, row: Row, period: Period) -> Cell:
        """Return what is said under the cursor: of a value its number with all digits."""
        value = row.shown.get(period)
        if value is None or self.view != "values":
            return self.cell(row, period)
        _, exact, number = in_unit(value, row.shown.values(), self.answers.question.unit)
        return just(exact, number)

    def index(self, row: Row, period: Period, number: Fraction) -> Cell:
        base = self.base(period.duration_months)
        if base is None:
            return just("not above zero")
        if (first := row.shown.get(base)) is None:
            return just(f"no value in {base.label}")
        if first.number <= 0:
            return just(f"not above zero in {base.label}")
        return computed(number / Fraction(first.number) * 100, 1, "")

    def base(self, months: int) -> Period | None:
        """Return the first period at which all lines are above zero, or most of them; None: none ever is."""
        lines = [row.shown for row in self.rows if any(each.duration_months == months for each in row.shown)]
        periods = sorted({each for line in lines for each in line if each.duration_months == months})
        above = [sum(line[each].number > 0 for line in lines if each in line) for each in periods]
        if not any(above):
            return None
        return periods[above.index(max(above))]

    def described_index(self) -> str:
        months = {each.duration_months for row in self.rows for each in row.shown}
        bases = [base for each in sorted(months, reverse=True) if (base := self.base(each)) is not None]
        return f"index, {', '.join(base.label for base in bases)} = 100" if bases else "index"

    def ratio(self, row: Row, period: Period, number: Fraction) -> Cell:
        if row.over is None or (by := row.over.get(period)) is None:
            return just("")
        if by.number == 0:
            return just("divided by zero")
        if self.is_percent:
            return computed(number / Fraction(by.number) * 100, 1, "%")
        ratio = number / Fraction(by.number)
        return Cell(frozenset(four_digits(ratio)), ratio)

    @property
    def is_percent(self) -> bool:
        ratios = [
            Fraction(value.number) / Fraction(row.over[period].number)
            for row in self.rows
            if row.over is not None
            for period, value in row.shown.items()
            if period in row.over and row.over[period].number != 0
        ]
        return all(abs(each) < 10 for each in ratios)

    def unit_of(self, row: Row) -> str:
        """Return the unit in which the numbers of a row are shown."""
        return unit_in(row, self.answers.question.unit) if self.view == "values" else ""

    def suffix(self, row: Row) -> str:
        """Return what the name of a row ends with."""
        is_asked = self.view == "values" and self.answers.question.unit
        return " (not divided)" if is_asked and row.shown and not self.unit_of(row) else ""

    def described(self) -> str:
        return {
            "values": "values",
            "growth": "growth over a year, percent",
            "index": self.described_index(),
            "ratio": f"ratio to {self.answers.over_label}",
        }[self.view]


def period_rest(period: Period) -> tuple[int, int]:
    return period.end_month, period.duration_months


def growth(number: Fraction, base: Value | None) -> Cell:
    if base is None:
        return just("")
    if base.number < 0:
        return just("from a loss")
    if base.number == 0:
        return just("from zero")
    return computed((number / Fraction(base.number) - 1) * 100, 1, "%", plus=True)


def roundings(number: Fraction, places: int) -> set[Decimal]:
    """Return a number rounded; where it is nearly a tie, either way."""
    exact = Decimal(number.numerator) / Decimal(number.denominator)
    found = {exact.quantize(Decimal(1).scaleb(-places), how) for how in (ROUND_HALF_UP, ROUND_HALF_EVEN)}
    # The page computes with floats.
    binary = Decimal(f"{float(number):.{places}f}")
    if abs(binary - exact) <= Decimal("0.5000001").scaleb(-places):
        found.add(binary)
    return found


def computed(number: Fraction, places: int, end: str, *, plus: bool = False) -> Cell:
    texts = set()
    for rounded in roundings(number, places):
        sign = "+" if plus and rounded > 0 else ""
        texts.add(f"{sign}{abs(rounded) if rounded == 0 else rounded:,.{places}f}{end}")
    return Cell(frozenset(texts), number)


def four_digits(number: Fraction) -> set[str]:
    exact = Decimal(number.numerator) / Decimal(number.denominator)
    if not exact:
        return {"0.000"}
    texts = set()
    for how in (ROUND_HALF_UP, ROUND_HALF_EVEN):
        rounded = exact.quantize(Decimal(1).scaleb(exact.adjusted() - 3), how)
        texts.add(f"{rounded:,.{max(0, 3 - rounded.adjusted())}f}")
    return texts


def amounts(values: Iterable[Value]) -> list[Fraction]:
    """Return the magnitudes of a row of amounts, without zeros; none for rows that stay undivided."""
    found = []
    for value in values:
        text = value.text.strip()
        if text and not any(map(str.isdigit, text)):
            continue
        if "%" in text + value.number_format or not re.fullmatch(AMOUNT, text or "1"):
            return []
        # In odd worlds texts are right: what is not, this oracle does not know.
        if value.number:
            found.append(abs(Fraction(repr(value.number))))
    return found if max(found, default=0) >= 1000 else []


CURRENCY = r"(?:[A-Z]{0,3}[$€£¥]|[A-Z]{3})?"
DIGITS = r"[\d][\d.,' ]*"
SCALE = r"(?: ?(?:k|m|bn|thousand|million|billion|trillion)\b)?"
AMOUNT = rf"[-+(\u2212]?{CURRENCY} ?[-+(\u2212]?{DIGITS}{SCALE}\)? ?{CURRENCY}\)?"


def in_unit(value: Value, values: Collection[Value], unit: str) -> tuple[str, str, Fraction]:
    """Return the text of a value in a unit, its text with all digits, and its number."""
    text, number = value.text if value.text.strip() else str(value.number), Fraction(repr(value.number))
    magnitudes = amounts(values) if unit else []
    if not magnitudes:
        scaled = re.search(r"[0#](,+)$", value.number_format) is not None
        written = f"{value.number:,}".removesuffix(".0")
        return text, f"{text} ({written})" if scaled else text, number
    divided = number / 10 ** POWERS[unit]
    if not number or not any(map(str.isdigit, text)):
        return text, text, divided
    places = 0
    while places < 6 and min(magnitudes) / 10 ** POWERS[unit] < Fraction(100, 10**places):
        places += 1
    start, end = re.split(rf"{DIGITS}{SCALE}", text) if value.text.strip() else ("-" * (number < 0), "")
    (rounded,) = {Decimal(abs(divided).numerator) / Decimal(abs(divided).denominator)}
    cell = f"{rounded.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP):,f}"
    return f"{start}{cell}{end}", f"{start}{rounded.normalize():,f}{end}", divided


def percent(values: Collection[Value]) -> int:
    """Return by what the numbers of a row are multiplied to be percent, as its largest value shows; or 0."""
    largest = max(values, key=lambda value: abs(value.number), default=None)
    if largest is None or not largest.text.strip(" )").endswith("%"):
        return 0
    stated = Decimal(re.sub(r"[^\d.]", "", largest.text))
    half = Fraction(5, 10) * Fraction(10) ** int(stated.as_tuple().exponent)
    number = abs(Fraction(repr(largest.number)))
    fitting = [factor for factor in (1, 100) if abs(number * factor - Fraction(stated)) <= half]
    return fitting[0] if len(fitting) == 1 or (fitting and not number) else 0


def unit_in(row: Row, unit: str) -> str:
    return unit if amounts(row.shown.values()) else ""


def groups(found: Answers) -> list[Group]:
    """Return the charts in order: each metric, or each company with each of its number formats."""
    by_key: dict[tuple[str, str], list[Row]] = {}
    for row in found.rows:
        of_company = row.panel.dataset.entity_id, row.series.number_format
        by_key.setdefault((row.series.metric_id, "") if found.question.by_metric else of_company, []).append(
            row
        )
    firsts = list(dict.fromkeys(first for first, _ in by_key))
    return [
        Group(found, rows)
        for first in firsts
        for key in by_key
        if key[0] == first
        for rows in of_one_scale(by_key[key], found.question)
    ]


def of_one_scale(rows: Sequence[Row], question: Drawn) -> list[list[Row]]:
    """Return the rows of each unit and percent; those without a value are with the first."""
    if question.view != "values":
        return [[*rows]]
    scale = lambda row: (unit_in(row, question.unit), percent(row.shown.values()))  # noqa: E731
    scales = list(dict.fromkeys(scale(row) for row in rows if row.shown)) or [None]
    return [
        [row for row in rows if (scale(row) if row.shown else scales[0]) == each or each is None]
        for each in scales
    ]


def differing(rows: Sequence[Row]) -> list[int]:
    """Return the places of the names that differ, and that of the series id if these are not enough."""
    places = [at for at in range(5) if len({row.names[at] for row in rows}) > 1]
    if len({tuple(row.names[at] for at in places) for row in rows}) < len({row.names for row in rows}):
        places.append(5)
    return places


@frozen
class Line:
    row: Row
    months: int
    periods: Sequence[Period]


def lines(group: Group) -> list[Line]:
    """Return the lines of a chart: of each row the durations that have a value, the longest first."""
    found = []
    for row in group.rows:
        drawn = periods_drawn(row.panel)
        for months in sorted({each.duration_months for each in drawn}, reverse=True):
            periods = [each for each in drawn if each.duration_months == months]
            if any(each in row.shown for each in periods):
                found.append(Line(row, months, periods))
    return found


def periods_drawn(panel: Panel) -> list[Period]:
    """Return the panel's periods, and those of the catalogue of the same durations that lie between them."""
    if not panel.periods:
        return []
    months = {each.duration_months for each in panel.periods}
    ends = [each.fiscal_end for each in panel.periods]
    between = [
        each
        for each in panel.catalogue.periods
        if each.duration_months in months and min(ends) <= each.fiscal_end <= max(ends)
    ]
    return sorted({*panel.periods, *between})


def charts(found: Answers) -> list[tuple[Group, list[Line]]]:
    """Return the charts that have a line, with all of their lines."""
    return [(group, drawn) for group in groups(found) if (drawn := lines(group))]


def identities(found: Answers) -> dict[tuple[Row, int], tuple[Any, ...]]:
    """Return what a colour belongs to, for each line, also for those without a value."""
    charts = []
    for group in groups(found):
        drawn = [(line.row, line.months) for line in lines(group)]
        charts.append(drawn + [(row, 0) for row in group.rows if row not in [row for row, _ in drawn]])
    fields = ("metric_id", "scopes", "basis", "version", "months", "reporting_group_id", "series_id")
    used: list[str] = []

    def of(line: tuple[Row, int], names: Sequence[str]) -> tuple[Any, ...]:
        row, months = line
        own = {"version": row.panel.value_version, "months": months}
        listed = row.panel.catalogue[row.series.series_id]
        return (row.panel.dataset.entity_id, *(own.get(each, getattr(listed, each, 0)) for each in names))

    for name in fields:
        more = [*used, name]
        if any(len({of(a, more) for a in chart}) > len({of(a, used) for a in chart}) for chart in charts):
            used = more
    return {line: of(line, used) for chart in charts for line in chart}


def line_labels(group: Group, drawn: Sequence[Line]) -> list[str]:
    places = differing([line.row for line in drawn])
    several = len({line.months for line in drawn}) > 1
    labels = []
    for line in drawn:
        parts = [line.row.names[at] for at in places if line.row.names[at]]
        parts += [f"{line.months} month{'' if line.months == 1 else 's'}"] if several else []
        labels.append((" / ".join(parts) or line.row.label) + group.suffix(line.row))
    return labels


def publication(rows: Sequence[Row]) -> str:
    dates = {row.company: f"{row.panel.dataset.created_timestamp:%Y-%m-%d}" for row in rows}
    if len(set(dates.values())) == 1:
        return f"publication of {min(dates.values())}"
    return "publications: " + ", ".join(f"{name} {date}" for name, date in dates.items())


def bodies(found: Answers) -> list[tuple[str, list[tuple[Group, Row]]]]:
    """Return the headings of the table with the rows below each, in the order of the charts."""
    by_heading: dict[str, list[tuple[Group, Row]]] = {}
    for group in groups(found):
        for row in group.rows:
            of_metric, of_company = row.series.metric_id, row.panel.dataset.entity_id
            key = of_metric if found.question.by_metric else of_company
            by_heading.setdefault(key, []).append((group, row))
    first = 1 if found.question.by_metric else 0
    return [(below[0][1].names[first], below) for below in by_heading.values()]


def row_name(row: Row, below: Sequence[Row], *, by_metric: bool) -> str:
    """Return what a row is called below its heading: the company or the label, and what else differs."""
    first = 0 if by_metric else 1
    places = [first, *(at for at in differing(below) if at > first)]
    return " / ".join(row.names[at] for at in places if row.names[at])


def csv_rows(found: Answers) -> Iterator[dict[str, Any]]:
    """Yield the lines of the download: each series at each period; `shown` and `text` are a `Cell`."""
    for group in groups(found):
        for row in group.rows:
            listed = row.panel.catalogue[row.series.series_id]
            for period in found.periods:
                value = row.shown.get(period)
                yield {
                    "entity_id": row.panel.dataset.entity_id,
                    "entity_name": row.panel.dataset.name,
                    "series_id": listed.series_id,
                    "metric_id": listed.metric_id,
                    "series_label": listed.label,
                    "scope_path": format_path(listed.scopes),
                    "reporting_group_id": listed.reporting_group_id,
                    "basis": listed.basis,
                    "description": listed.description,
                    "series_number_format": listed.number_format,
                    "asked_version": row.panel.value_version,
                    "period_label": period.label,
                    "view": group.described(),
                    "unit": group.unit_of(row),
                    "number": value,
                    "cell": group.cell(row, period),
                }


def plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")[:60]


def stem(found: Answers, title: str = "") -> str:
    """Return the name of a file: the first company, how many more, the chart's title, the view."""
    names = list(dict.fromkeys(row.company for row in found.rows))
    more = [f"and-{len(names) - 1}-more"] if len(names) > 1 else []
    view = [] if found.question.view == "values" else [found.question.view]
    return "-".join([plain(names[0]), *more, *filter(None, [plain(title)]), *view])
