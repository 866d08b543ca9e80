"""The part of one or several panels that is shown: series, periods, and the names of
the series.

A year and its quarters are different quantities, so a table and a line of a plot hold
periods of one duration. A series with values of two durations is shown for each of
them.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress
from typing import TypeAlias

from attrs import evolve, frozen

from asyncfin.errors import shorten
from asyncfin.model.period import Period
from asyncfin.table import notes
from asyncfin.table.block import Axis
from asyncfin.table.grid import Grid
from asyncfin.table.rows import Row, heading, in_unit
from asyncfin.table.why import Result
from asyncfin.words import Unit, counted, entity_names

# How much of a label is shown.
_LONGEST = 1_000


def _observed_rows(grid: Grid) -> Iterator[Row]:
    """Yield the series of a panel with the positions of their values."""
    stored = {
        block.series_ids[row]: (block.axis, block.observations(row)[0])
        for block, rows in grid.rows()
        for row in rows
    }
    for series in grid.series:
        yield Row(grid, series, *stored.get(series.series_id, ()))


# The positions of the wanted periods, by panel and axis.
Positions: TypeAlias = Mapping[Grid, Mapping[Axis, frozenset[int]]]


def _has(row: Row, wanted: Positions) -> bool:
    """Return whether a series has a value at one of the wanted periods."""
    # The first such position ends the search: of 170,000 values few are examined.
    return row.axis is not None and not wanted[row.grid][row.axis].isdisjoint(
        row.positions
    )


def _wanted(rows: Iterable[Row], periods: Iterable[Period]) -> Positions:
    """Return where the axes of some series have these periods, as far as their panel
    has them.
    """
    axes: dict[Grid, set[Axis]] = {}
    for row in rows:
        if row.axis is not None:
            axes.setdefault(row.grid, set()).add(row.axis)
    wanted = {}
    for grid, of_grid in axes.items():
        both = set(periods).intersection(grid.periods)
        wanted[grid] = {
            axis: frozenset(
                at for at, period in enumerate(axis.periods) if period in both
            )
            for axis in of_grid
        }
    return wanted


@frozen
class SeriesNames:
    """The names of some series.

    Attributes:
        shared: the texts that all series have in common, by column.
        heads: the titles of the columns in which they differ; at least one column.
        texts: the texts of each series in these columns. No two series have the same
            texts.
    """

    shared: Mapping[str, str]
    heads: tuple[str, ...]
    texts: Mapping[Row, tuple[str, ...]]

    @property
    def heading(self) -> str:
        """The label and the scopes that all series share, unless the rows show them,
        and the unit.

        The scopes of the whole entity go without saying; those of a part would be taken
        for it.
        """
        label = "" if "series" in self.heads else self.shared.get("series", "")
        is_part = not all(row.series.is_consolidated for row in self.texts)
        scopes = (
            self.shared.get("scopes", "")
            if is_part and "scopes" not in self.heads
            else ""
        )
        return heading(
            ", ".join(shorten(text, _LONGEST) for text in (label, scopes) if text),
            self.texts,
        )

    def of_entity(self, grid: Grid) -> tuple[str, ...]:
        """Return the texts of an entity without series."""
        names = entity_names(
            each.catalogue for each in (grid, *(row.grid for row in self.texts))
        )
        return tuple(
            names[grid.catalogue.entity_id] if head == "entity" else ""
            for head in self.heads
        )

    def with_suffixes(self) -> "SeriesNames":
        """Return the names, of which the last one says which rows are not divided."""
        texts = {}
        for row, columns in self.texts.items():
            last = max(place for place, text in enumerate(columns) if text or not place)
            name = columns[last] + row.scale.suffix
            texts[row] = (*columns[:last], name, *columns[last + 1 :])
        return evolve(self, texts=texts)

    def within(self, section: "Section") -> tuple[str, "SeriesNames"]:
        """Return the caption of a section's table, and the names that distinguish its
        series within it.

        The caption holds the texts that these series share but others do not.
        """
        rows = section.rows
        columns = dict(
            zip(
                self.heads,
                zip(*(self.texts[row] for row in rows), strict=True),
                strict=True,
            )
        )
        shared = {
            head: texts[0] for head, texts in columns.items() if len(set(texts)) == 1
        }
        if section.without:  # their rows have no other name
            shared.pop("entity", None)
        # A table with one row shares all its texts: one of them has to stay in the row.
        if len(shared) == len(columns):
            del shared["series" if "series" in shared else next(iter(shared))]
        heads = tuple(head for head in columns if head not in shared)
        texts = zip(*(columns[head] for head in heads), strict=True)
        return ", ".join(filter(None, shared.values())), SeriesNames(
            shared, heads, dict(zip(rows, texts, strict=True))
        )


def names_of(
    rows: Sequence[Row],
    *,
    group_names: bool = False,
    always: Collection[str] = (),
    grids: Sequence[Grid] = (),
    reserved: Collection[str] = (),
    ids: Sequence[str] = ("metric", "group id", "series id"),
) -> SeriesNames:
    """Return the names of series: those of entity, publication, version, label, scopes
    and group that differ.

    Series whose names are alike have their ids too: the metric's, and the group's and
    their own where that is not enough.

    Args:
        group_names: name the reporting groups. False: their ids, which queries and the
            command line take.
        always: columns that are needed even if all series share them.
        grids: panels that are shown, with series or not: their entities are
            distinguished too.
        reserved: names that no series may have.
        ids: what names that are alike get, one after the other.
    """
    entities = entity_names(
        each.catalogue for each in (*grids, *(row.grid for row in rows))
    )
    columns = {
        "entity": [entities[row.grid.catalogue.entity_id] for row in rows],
        "publication": _publications(rows),
        "values": [row.grid.value_version for row in rows],
        "series": [row.label for row in rows],
        "scopes": [row.grid.path_names(row.series) for row in rows],
        "group": [
            row.grid.catalogue.by_group[row.series.reporting_group_id].name
            if group_names
            else row.series.reporting_group_id
            for row in rows
        ],
    }
    shared = {
        head: texts[0]
        for head, texts in columns.items()
        if len(set(texts)) == 1 and head not in always
    }
    differing = {head: texts for head, texts in columns.items() if head not in shared}
    # A single series needs a name in its row too.
    columns = differing or {"series": columns["series"]}
    columns |= _ids(rows, list(zip(*columns.values(), strict=True)), reserved, ids)
    texts = zip(*columns.values(), strict=True)
    return SeriesNames(shared, tuple(columns), dict(zip(rows, texts, strict=True)))


def joined(texts: Iterable[str]) -> str:
    """Return the texts of a series as one name."""
    return ", ".join(filter(None, texts))


def _ids(
    rows: Sequence[Row],
    texts: Sequence[tuple[str, ...]],
    reserved: Collection[str],
    wanted: Sequence[str],
) -> dict[str, list[str]]:
    """Return columns of the ids that distinguish series whose texts do not; "" for the
    other series.
    """
    known = {
        "metric": [row.series.metric_id for row in rows],
        "group id": [row.series.reporting_group_id for row in rows],
        "series id": [row.series.series_id for row in rows],
    }
    ids = {head: known[head] for head in wanted}
    each_has = list(zip(*ids.values(), strict=True))
    used = [0] * len(rows)
    # "Revenue, net" of Europe is joined like "Revenue" of "net, Europe": what is
    # compared is the whole name.
    while True:
        names = [
            joined([*own, *more[:count]])
            for own, more, count in zip(texts, each_has, used, strict=True)
        ]
        times = Counter([*names, *reserved])
        alike = [
            at
            for at, name in enumerate(names)
            if times[name] > 1 and used[at] < len(ids)
        ]
        if not alike:
            break
        for at in alike:
            used[at] += 1
    return {
        head: [
            text if count > place else ""
            for text, count in zip(column, used, strict=True)
        ]
        for place, (head, column) in enumerate(ids.items())
        if any(count > place for count in used)
    }


def _publications(rows: Sequence[Row]) -> list[str]:
    """Return the ids of the publications where an entity has several of them, else
    empty texts.
    """
    known = {
        (row.grid.catalogue.entity_id, row.grid.catalogue.dataset_id) for row in rows
    }
    several = len(known) > len({entity_id for entity_id, _ in known})
    return [row.grid.catalogue.dataset_id if several else "" for row in rows]


@frozen
class Section:
    """Series at periods of one duration, oldest first, and the entities that have no
    series at all.
    """

    periods: tuple[Period, ...]
    rows: tuple[Row, ...]
    without: tuple[Grid, ...] = ()

    def latest(self, count: int, *, empty: bool) -> "Section":
        """Return the section of the latest periods, without the series that have no
        value in these.

        Args:
            empty: keep those series.
        """
        if count >= len(self.periods):
            return self
        periods = self.periods[len(self.periods) - count :]
        wanted = _wanted(self.rows, periods)
        rows = (
            self.rows if empty else tuple(row for row in self.rows if _has(row, wanted))
        )
        return evolve(self, periods=periods, rows=rows)


@frozen
class Excerpt:
    """The sections that are shown, and how much there is in all.

    Attributes:
        sections: years, quarters, half years, nine months, other durations; none
            without series.
        series: the number of series.
        periods: the number of periods.
        grids: the panels.
        unused: the number of periods of a duration in which no series has a value.
        cut: the number of series left out because there are too many.
        entities: the number of entities of which all series are left out for that.
        partly: how often a series is missing in one of the tables and shown in another.
    """

    sections: tuple[Section, ...]
    series: int
    periods: int
    grids: tuple[Grid, ...]
    unused: int
    cut: int = 0
    entities: int = 0
    partly: int = 0

    def latest(self, counts: Iterable[int], *, empty: bool = False) -> "Excerpt":
        """Return the excerpt with the latest periods of each section only; `counts`
        says how many.
        """
        sections = [
            section.latest(count, empty=empty)
            for section, count in zip(self.sections, counts, strict=True)
        ]
        latest = tuple(section for section in sections if section.rows)
        shown = _series(latest)
        # Counted from what was in these tables before, the periods that were cut
        # included.
        missing = (
            shown & set(before.rows) - set(after.rows)
            for before, after in zip(self.sections, sections, strict=True)
            if after.rows
        )
        return evolve(
            self, sections=latest, partly=self.partly + sum(map(len, missing))
        )

    def first(self, most: int) -> "Excerpt":
        """Return the excerpt with at most this many series in each section, some of
        each entity.
        """
        sections = tuple(
            evolve(section, rows=_first_rows(section.rows, most))
            for section in self.sections
        )
        return self._cut_to(sections)

    def first_sections(self, most: int) -> "Excerpt":
        """Return the excerpt with at most this many sections, the first ones."""
        return self._cut_to(self.sections[:most])

    def _cut_to(self, sections: tuple[Section, ...]) -> "Excerpt":
        before, after = _series(self.sections), _series(sections)
        entities = {row.entity_id for row in before} - {row.entity_id for row in after}
        cut = len(before - after)
        return evolve(
            self,
            sections=sections,
            cut=self.cut + cut,
            entities=self.entities + len(entities),
        )

    def names(self) -> SeriesNames:
        """Return the names of all series that are shown, in the same columns for every
        section.
        """
        # With several entities each row names its entity, even if one entity has all
        # rows.
        several = len({grid.catalogue.entity_id for grid in self.grids}) > 1
        rows = list(
            dict.fromkeys(row for section in self.sections for row in section.rows)
        )
        return names_of(rows, always=("entity",) if several else (), grids=self.grids)

    def tables(self) -> Iterator[tuple[Section, str, SeriesNames]]:
        """Yield each section with the caption of its table, and the names of its series
        within the table.
        """
        names = self.names()
        for section in self.sections:
            shared, within = names.within(section)
            # A table of quarters and one of half years can share all names. A long
            # caption is cut at its end.
            months = counted(section.periods[0].duration_months, "month")
            duration = f"periods of {months}" if len(self.sections) > 1 else ""
            yield (
                section,
                ", ".join(filter(None, [duration, shared])),
                within.with_suffixes(),
            )

    def notes(self) -> Iterator[str]:
        """Yield a line for each kind of thing that is not shown."""
        shown = {period for section in self.sections for period in section.periods}
        # Nothing is said of hidden periods where no table is shown: the panel's own
        # facts say why.
        hidden = self.periods - self.unused - len(shown)
        if hidden and shown:
            yield (f"the latest {len(shown)} of {self.periods} periods are shown")
        if self.unused and shown:
            yield f"{counted(self.unused, 'period')} without a value left out"
        if empty := self.series - self.cut - len(_series(self.sections)):
            where = " in these periods" if hidden and shown else ""
            yield f"{empty:,} series without a value{where} left out"
        if self.partly:
            times = counted(self.partly, "series", "series")
            yield (f"{times} left out of a table without a value in its periods")
        if self.cut:
            more = (
                f" of {counted(self.entities, 'more company', 'more companies')}"
                if self.entities
                else ""
            )
            yield f"{self.cut:,} more series not shown" + (
                f", among them all{more}" if more else ""
            )
        yield from notes.notes(self.grids, sorted(shown))
        yield from self._descriptions()

    def _descriptions(self) -> Iterator[str]:
        """Yield the descriptions of the series that are shown, which state their
        units.
        """
        names = self.names()
        apart = [head != "series" for head in names.heads]
        return notes.descriptions(
            {row: joined(compress(texts, apart)) for row, texts in names.texts.items()}
        )


def _first_rows(rows: Sequence[Row], most: int) -> tuple[Row, ...]:
    """Return some rows in their order, at least one of each entity as far as
    possible.
    """
    firsts = list({row.entity_id: row for row in reversed(rows)}.values())[::-1]
    chosen = set(list(dict.fromkeys([*firsts, *rows]))[:most])
    return tuple(row for row in rows if row in chosen)


def _series(sections: Iterable[Section]) -> set[Row]:
    """Return the series of some sections, without repeating one that has values of two
    durations.
    """
    return {row for section in sections for row in section.rows}


def excerpt(
    panels: Iterable[Result], *, empty: bool = False, unit: Unit | None = None
) -> Excerpt:
    """Return all series and periods of some panels, in sections.

    Args:
        unit: what amounts are divided by.
        empty: show series and periods without any value too, the series in every
            section.
    """
    grids = tuple(panel._grid for panel in panels)
    # From the numbers, which are decoded: finding out what has a value decodes nothing.
    rows = in_unit([row for grid in grids for row in _observed_rows(grid)], unit)
    by_duration: dict[int, list[Period]] = {}
    for period in sorted(set(chain.from_iterable(grid.periods for grid in grids))):
        by_duration.setdefault(period.duration_months, []).append(period)
    without = tuple(grid for grid in grids if not grid.series) if len(grids) > 1 else ()
    sections = []
    for duration in sorted(by_duration, key=_rank):
        wanted = _wanted(rows, by_duration[duration])
        shown = tuple(row for row in rows if _has(row, wanted))
        if empty:
            shown += (
                tuple(row for row in rows if not _has(row, wanted))
                if len(grids) > 1
                else ()
            )
            shown = shown if len(grids) > 1 else tuple(rows)
        if shown:
            sections.append(Section(tuple(by_duration[duration]), shown, without))
    periods = sum(map(len, by_duration.values()))
    # Without series there are no sections, and no duration is called unused for that.
    used = (
        sum(len(section.periods) for section in sections)
        if rows or not empty
        else periods
    )
    return Excerpt(tuple(sections), len(rows), periods, grids, periods - used)


# What all faces show of several companies.
MOST_PERIODS = 12
MOST_SECTIONS = 4
_MOST_ROWS = 40


def excerpt_of_several(
    panels: Iterable[Result],
    *,
    empty: bool = False,
    unit: Unit | None = None,
    latest: bool = True,
) -> Excerpt:
    """Return the rows that every face shows of several companies, some of each.

    Args:
        latest: the latest 12 periods only.
        empty, unit: as for `excerpt`.
    """
    whole = excerpt(panels, empty=empty, unit=unit).first_sections(MOST_SECTIONS)
    if latest:
        whole = whole.latest([MOST_PERIODS] * len(whole.sections), empty=empty)
    return whole.first(_MOST_ROWS)


def _rank(duration: int) -> tuple[int, int]:
    """Return the key that sorts years before quarters, then half years, nine months,
    and all others.
    """
    usual = (
        12,
        3,
        6,
        9,
    )  # half years and nine months are sums of quarters: they come after these
    return usual.index(duration) if duration in usual else len(usual), duration
