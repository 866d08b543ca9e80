"""The rows and notes of one company's values. Pure: panels in, rows and notes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from attrs import frozen

from asyncfin.analysis.lines import joined
from asyncfin.mcp.handles import Handles, Meaning
from asyncfin.mcp.results import Row, quoted
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.period import Period
from asyncfin.model.selection import Exact, Trailing
from asyncfin.model.series import Series, further_description
from asyncfin.model.value import Value, shown_text
from asyncfin.table.notes import shortened
from asyncfin.table.panel import Panel
from asyncfin.table.why import why
from asyncfin.words import listed, spanned

MISSING = "this company does not have the series"
_MAX_DIFFERENCES = 6


# Not slotted, for the cached property.
@frozen(slots=False)
class Part:
    """One company's part of a result.

    Attributes:
        panel: the values that are shown, over all periods or a trailing window.
        other: those of the other value version. None: it was not requested.
        items: what was asked for; of each item at least one metric and path.
        handles: of the session.
        asked: which periods are shown.
        named: those that were asked for by their labels.
        name: what notes call the company.
    """

    panel: Panel
    other: Panel | None
    items: tuple[tuple[Meaning, ...], ...]
    handles: Handles
    asked: Exact | Trailing
    named: tuple[Period, ...]
    name: str

    @property
    def catalogue(self) -> Catalogue:
        """The company's catalogue."""
        return self.panel.catalogue

    @property
    def periods(self) -> tuple[Period, ...]:
        """The periods that are shown: those asked for that the catalogue has, oldest
        first.
        """
        if isinstance(self.asked, Trailing):
            return self.panel.periods
        return tuple(
            sorted(set(self.asked.periods).intersection(self.catalogue.periods))
        )

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """What each row shows, in the order of the items."""
        return tuple(self._lines())

    def _lines(self) -> Iterator[Line]:
        by_meaning: dict[Meaning, list[Series]] = {}
        for series in self.panel:
            by_meaning.setdefault(Meaning(series.metric_id, series.scopes), []).append(
                series
            )
        shown = set(self.periods)
        for item in self.items:
            found = [meaning for meaning in item if meaning in by_meaning]
            if not found:
                yield Line(item[0], ())
            for meaning in found:
                # One metric and path can be in several reporting groups, such as annual
                # and quarterly.
                several = by_meaning[meaning]
                filled = [
                    each
                    for each in several
                    if any(at in shown for at, _ in each.observations())
                ]
                numbers = {
                    each.series_id: {
                        period: value.number for period, value in each.observations()
                    }
                    for each in filled
                }
                if (
                    len(
                        list(
                            joined(
                                [self.catalogue[each.series_id] for each in filled],
                                numbers,
                            )
                        )
                    )
                    > 1
                ):
                    yield from (
                        Line(meaning, (each,), _place(each, filled)) for each in filled
                    )
                else:
                    yield Line(meaning, tuple(filled or several[:1]))

    def row_name(self, line: Line) -> str:
        """Return what notes call a row: its handle, and its place if there are several
        rows of it.
        """
        handle = self.handles.of(line.meaning)
        return f"{handle} [{line.place}]" if line.place else handle


def _place(series: Series, several: Sequence[Series]) -> str:
    """Return what distinguishes a series from others of one metric and path: its group,
    and maybe its id.
    """
    group_id = series.reporting_group_id
    alike = sum(each.reporting_group_id == group_id for each in several)
    return f"{group_id}, {series.series_id}" if alike > 1 else group_id


@frozen
class Line:
    """What one row shows.

    Attributes:
        meaning: its metric and path.
        series: the company's series of it, which differ in their reporting groups; none
            if it has none.
        place: the reporting group, and the series id if needed, if the series are not
            one line.
    """

    meaning: Meaning
    series: tuple[Series, ...]
    place: str = ""

    def values(self) -> dict[Period, Value]:
        """Return the values of all its series."""
        return {
            period: value
            for series in self.series
            for period, value in series.observations()
        }


def text_of(value: Value | None) -> str:
    """Return a value as a cell: its text, or its number if the text is empty; "" for no
    value.
    """
    if value is None:
        return ""
    return shown_text(value)


def rows_of(part: Part) -> Iterator[Row]:
    """Yield the rows of a company; the first has the company and its fiscal labels
    before it.
    """
    catalogue, labels = part.catalogue, [period.label for period in part.periods]
    published = f"publication of {catalogue.created_timestamp:%Y-%m-%d}"
    head: tuple[str, ...] = (
        f"{part.name} ({catalogue.entity_id}), {published}"
        + ("" if labels else ", has none of these periods"),
        "\t".join(["series", "label", "scopes", "description", *labels]),
    )
    for each in part.lines:
        handle = part.handles.of(each.meaning)
        scopes = " / ".join(catalogue.scope_names(each.meaning.scopes))
        scopes += f" [{each.place}]" if each.place else ""
        label, description = _described(catalogue, each)
        values = each.values()
        texts = [text_of(values.get(period)) for period in part.periods]
        fields = {
            "company": catalogue.entity_id,
            "series": handle,
            "metric": each.meaning.metric_id,
            "label": label,
            "scopes": scopes,
            "group": each.place,
            "description": description,
            "values": {
                label: text for label, text in zip(labels, texts, strict=True) if text
            },
        }
        yield Row([handle, label, scopes, description, *texts], fields, head)
        head = ()


def _described(catalogue: Catalogue, line: Line) -> tuple[str, str]:
    """Return the label of a row, and its description where that says more."""
    if not line.series:
        return line.meaning.metric_id, MISSING
    series = catalogue[line.series[0].series_id]
    return series.label, shortened(further_description(series))


def notes_of(part: Part) -> Iterator[str]:
    """Yield what a reader of a company's rows must know: missing years, empty cells,
    restated values.
    """
    shown = part.periods
    if not shown:
        yield (
            f"{part.name} has none of these periods; it has "
            f"{spanned(part.catalogue.periods) or 'none'}"
        )
        return
    if unknown := sorted(set(part.named).difference(shown)):
        yield f"{part.name} does not have the periods {_labels(unknown)}"
    gaps: Sequence[Period] = ()
    if read := set(shown).intersection(part.panel.periods):
        panel = part.panel.during(read)
        gaps = panel.gaps
        yield from (f"{part.name}: {note}" for note in panel.notes)
    for line in part.lines:
        name = part.row_name(line)
        if not line.series:
            yield f"{part.name}: {name}: {MISSING}"
            continue
        yield from _empty_cells(part, name, line, gaps)
        yield from _restated(part, name, line)


def _empty_cells(
    part: Part, name: str, line: Line, gaps: Sequence[Period]
) -> Iterator[str]:
    """Yield why cells of a row are empty, a line for each reason, and where the values
    are.
    """
    observed = sorted(line.values())
    series_ids = [series.series_id for series in line.series]
    by_reason: dict[str, list[Period]] = {}
    for period in part.periods:
        reason = (
            None
            if period in gaps
            else why(part.panel, series_ids, period, named=quoted)
        )
        if reason is not None:
            by_reason.setdefault(reason, []).append(period)
    for reason, periods in by_reason.items():
        yield f"{part.name}: {name} is empty in {_labels(periods)}: {reason}"
    if by_reason and not set(part.periods).intersection(observed):
        yield f"{part.name}: {name} has values in: {spanned(observed) or 'no period'}"


def _restated(part: Part, name: str, line: Line) -> Iterator[str]:
    """Yield the values that differ between the versions."""
    if part.other is None:
        return
    others = Line(
        line.meaning,
        tuple(
            part.other[each.series_id]
            for each in line.series
            if each.series_id in part.other
        ),
    ).values()
    here, is_restated = line.values(), part.panel.value_version == "latest_restated"
    differences = []
    for period in part.periods:
        pair = here.get(period), others.get(period)
        first, last = reversed(pair) if is_restated else pair
        if (first and first.number) != (last and last.number):
            differences.append(
                f"{period} {text_of(first) or 'none'} -> {text_of(last) or 'none'}"
            )
    if differences:
        named = listed(differences, _MAX_DIFFERENCES, between="; ")
        yield (
            f"{part.name}: {name} was restated (first reported -> last restated): "
            f"{named}"
        )


def differing(parts: Sequence[Part]) -> Iterator[str]:
    """Yield the metrics that the companies, or their series, describe differently:
    their units may differ.
    """
    texts: dict[str, dict[str, list[tuple[Part, Line]]]] = {}
    for part in parts:
        for line in part.lines:
            for description in dict.fromkeys(
                part.catalogue[each.series_id].description for each in line.series
            ):
                described = texts.setdefault(line.meaning.metric_id, {})
                described.setdefault(description.strip(), []).append((part, line))
    for metric_id, described in texts.items():
        if len(described) > 1:
            each = "; ".join(
                f"{', '.join(_sources(found, described.values(), len(parts)))}:"
                f" {quoted(shortened(text)) if text else 'none'}"
                for text, found in described.items()
            )
            yield f"{metric_id} has different descriptions: {each}"


def _sources(
    found: Iterable[tuple[Part, Line]],
    every: Iterable[Iterable[tuple[Part, Line]]],
    companies: int,
) -> Iterable[str]:
    """Return the rows or companies that have one of several descriptions of a
    metric.
    """
    several = Counter(
        id(part)
        for described in every
        for part in {id(part): part for part, _ in described}.values()
    )
    names = []
    for part, line in found:
        # A company is enough where all of its rows have one description.
        row = part.row_name(line) if several[id(part)] > 1 or companies == 1 else ""
        names.append(": ".join(filter(None, [part.name if companies > 1 else "", row])))
    return dict.fromkeys(names)


def _labels(periods: Iterable[Period]) -> str:
    return listed([period.label for period in periods])
