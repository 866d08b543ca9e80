"""Panels next to each other: the Comparison of several entities."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from attrs import field, frozen

from asyncfin import checks
from asyncfin.errors import AsyncfinError, SelectionError, printable, shorten
from asyncfin.model.frame import pandas_frame
from asyncfin.model.judge import Missing, complaint, named
from asyncfin.model.period import Period
from asyncfin.model.query import ValueVersion
from asyncfin.model.select import Select
from asyncfin.optional import library
from asyncfin.table import document
from asyncfin.table.arrow import METADATA
from asyncfin.table.csv import to_csv
from asyncfin.table.frames import Layout, polars_frame, with_index
from asyncfin.table.latest import Latest, latest
from asyncfin.table.notes import MOST_PERIODS_NAMED, alike, differing
from asyncfin.table.panel import Panel, Periods, concat
from asyncfin.table.rows import Row, rows_of
from asyncfin.table.show import Shown, show
from asyncfin.words import Unit, counted, entity_names, listed

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow
    from matplotlib.axes import Axes

# How much of a note is shown: a name of the service can have a megabyte.
_LONGEST = 10_000
_MOST_COMPANIES = 12
_indent = checks.whole_number(0).optional()


@frozen(eq=False, repr=False)
class Comparison:
    """What several entities have of one question, side by side.

    Iterating yields each `Panel`, in the order of the question, ``len`` counts them,
    and ``entity_id in comparison`` and ``comparison[entity_id]`` find one.
    ``str(comparison)`` is a table with all entities, at most 100 columns wide, and the
    `notes`.

    The same fiscal period of two entities can be different months.

    Attributes:
        panels: the panel of each entity that could be read, by entity id. One that has
            nothing of the question has no series.
        failed: why the others could not be read, by entity id. Each requested entity is
            either here or in `panels`.
        missing: the ids, words and periods of the question that an entity does not
            have, by entity id and field, as in `EntityAnswer.missing`. Of a rule,
            ``periods`` are those resolved over all entities, where an entity has none
            of them.
        unknown: the ids and words that no entity has, by field.
        select: the selection of series.
        value_version: the requested value version, ``"original"`` or
            ``"latest_restated"``.
        requests: the number of requests spent, including retries, metadata, catalogues
            and those of the entities that failed. 0: everything was cached or shared
            with pending questions.
        ended: what ended the reading early, such as a used-up allowance. The entities
            that were not read then have this error in `failed`. None: nothing did.
    """

    panels: Mapping[str, Panel]
    failed: Mapping[str, AsyncfinError]
    missing: Mapping[str, Missing]
    unknown: Missing
    select: Select
    value_version: ValueVersion
    requests: int
    ended: AsyncfinError | None = None
    _names: Mapping[str, str] = field(
        factory=dict
    )  # of entities that failed, as far as known

    def __iter__(self) -> Iterator[Panel]:
        return iter(self.panels.values())

    def __len__(self) -> int:
        return len(self.panels)

    def __bool__(self) -> bool:
        return True

    def __contains__(self, entity_id: object) -> bool:
        return entity_id in self.panels

    def __getitem__(self, entity_id: str) -> Panel:
        if (panel := self.panels.get(entity_id)) is not None:
            return panel
        if (error := self.failed.get(entity_id)) is not None:
            raise KeyError(
                f"{entity_id} could not be read: {type(error).__name__}: {error}"
            )
        raise KeyError(f"{entity_id} is not an entity of this comparison")

    @property
    def periods(self) -> tuple[Period, ...]:
        """The periods of all panels, oldest first."""
        return Periods(sorted({period for panel in self for period in panel.periods}))

    @property
    def periods_with_gaps(self) -> tuple[Period, ...]:
        """The `Panel.periods_with_gaps` of all panels, oldest first."""
        return tuple(
            sorted({period for panel in self for period in panel.periods_with_gaps})
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the figures must know, a line each.

        First each entity that failed; then what no entity has, and what each does not
        have; the notes of each panel, such as its gaps; that fiscal periods of entities
        can differ; differing descriptions.
        """
        return tuple(printable(shorten(line, _LONGEST)) for line in self._notes())

    def _notes(self) -> Iterator[str]:
        for entity_id, error in self.failed.items():
            yield (
                f"{self._names.get(entity_id) or entity_id}: {type(error).__name__}: "
                f"{error}"
            )
        if self.unknown:
            near = next(
                (complaint(panel.catalogue, self.unknown) for panel in self), ""
            )
            yield f"no entity has {named(self.unknown)}" + (f"; {near}" if near else "")
        names = entity_names(panel.catalogue for panel in self)
        yield from self.lacking()
        by_line: dict[str, list[str]] = {}
        for panel in self:
            # Of one without values, what is missing says why, or that it has none.
            for line in panel.notes if len(panel) and panel.value_count else ():
                by_line.setdefault(line, []).append(names[panel.dataset.entity_id])
        for line, companies in by_line.items():
            yield f"{listed(companies, _MOST_COMPANIES)}: {line}"
        if len(self) > 1:
            yield "the same fiscal period of two entities can be different months"
        yield from differing(rows_of(panel._grid for panel in self))

    def lacking(self, *, periods: bool = True) -> Iterator[str]:
        """Yield what companies do not have, a line for each kind.

        Of the ids and words of one field a company needs one only: companies report
        under other tags.

        Args:
            periods: which of them have none of the question's periods, too, or no value
                in them.
        """
        names = entity_names(panel.catalogue for panel in self)
        pairs = []
        for entity_id, missing in self.missing.items():
            for name, ids in missing.items():
                left = tuple(
                    each for each in ids if each not in self.unknown.get(name, ())
                )
                if name == "periods":
                    pairs += (
                        [(names[entity_id], f"no {listed(left, MOST_PERIODS_NAMED)}")]
                        if left and periods
                        else []
                    )
                elif left and len(ids) >= len(getattr(self.select, name, None) or ()):
                    pairs.append((names[entity_id], f"no {named({name: left})}"))
        for panel in self:
            entity_id = panel.dataset.entity_id
            if (
                periods
                and len(panel)
                and not panel.value_count
                and "periods" not in self.missing.get(entity_id, ())
            ):
                pairs.append((names[entity_id], "no value in these periods"))
        yield from alike(pairs)

    def to_arrow(
        self,
        layout: Layout = "wide",
        *,
        labels: bool = True,
        columns: Iterable[str] | None = None,
        complete: bool = False,
    ) -> "pyarrow.Table":
        """Return the table of all panels as `concat` does (extra ``arrow``).

        An entity that could not be read has no column, since null means "no value": the
        entry `failed` of the metadata (the JSON under ``asyncfin``) has its error, by
        entity id.

        Args:
            layout: as for `concat`; so are `labels`, `columns` and `complete`.

        Raises:
            ArgumentError: as for `concat`.
            SelectionError: as for `concat`; or, of the wide layout, the windows of a
                `Trailing` end at different periods.
            MalformedAnswerError: a value breaks the spec.
            ImportError: pyarrow is not installed.
        """
        if layout == "wide":
            self._refuse_windows()
        table = concat(self, layout, labels, columns=columns, complete=complete)
        metadata = dict(table.schema.metadata)
        facts = json.loads(metadata[METADATA]) | {"failed": self._failed()}
        return table.replace_schema_metadata(
            metadata | {METADATA: json.dumps(facts).encode()}
        )

    def _refuse_windows(self) -> None:
        ends = {panel: panel.anchor for panel in self if panel.anchor is not None}
        if len({anchor.fiscal_end for anchor in ends.values()}) > 1:
            names = entity_names(panel.catalogue for panel in self)
            named = ", ".join(
                f"{names[panel.dataset.entity_id]} {anchor}"
                for panel, anchor in ends.items()
            )
            raise SelectionError(
                "the windows of a Trailing end at different periods "
                f"({printable(named)}), so a null could be"
                " a period that was not requested: ask for Quarterly(last=...), or "
                'write layout="long"'
            )

    def _failed(self) -> dict[str, str]:
        return {
            entity_id: f"{type(error).__name__}: {error}"
            for entity_id, error in self.failed.items()
        }

    def to_pandas(
        self,
        layout: Layout = "wide",
        *,
        labels: bool = True,
        columns: Iterable[str] | None = None,
        complete: bool = False,
    ) -> "pandas.DataFrame":
        """Return a pandas DataFrame (extra ``pandas``); arguments and errors as for
        `to_arrow`.

        The wide one is indexed by period, with `labels` whatever `columns` are, and all
        its columns are numbers: ``frame.mean(axis=1)`` is the mean of the entities.
        ``frame.attrs["asyncfin"]`` is a short text that names the entities that failed.
        """
        library("pandas", "pandas")
        wanted = with_index(columns, layout, labels=labels)
        table = self.to_arrow(layout, labels=labels, columns=wanted, complete=complete)
        frame: pandas.DataFrame = pandas_frame(table)
        failed = "".join(
            f"; failed: {entity_id}: {error}"
            for entity_id, error in self._failed().items()
        )
        entities = counted(len(self), "entity", "entities")
        frame.attrs = {
            "asyncfin": printable(f"{entities}, {self.value_version} values{failed}")
        }
        return frame

    def to_polars(
        self,
        layout: Layout = "wide",
        *,
        labels: bool = True,
        columns: Iterable[str] | None = None,
        complete: bool = False,
    ) -> "polars.DataFrame":
        """Return a polars DataFrame (extra ``polars``); arguments and errors as for
        `to_arrow`.

        Raises:
            ArgumentError: a column would be named by a series id that contains NUL.
        """
        library("polars", "polars")
        return polars_frame(
            self.to_arrow(layout, labels=labels, columns=columns, complete=complete)
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the panels on the same axes, as `Panel.plot` does for one (extra
        ``plot``).

        Raises:
            SelectionError: as for `Panel.plot`.
            ImportError: matplotlib is not installed.
        """
        from asyncfin.table.plot import plot

        return plot(self, ax)

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the comparison as one JSON document.

        It has `panels`, the documents of `Panel.to_json` in the order of the question;
        `failed`, by entity id ``error`` (the class), ``message``, ``status`` and
        ``code`` (null without a response); `missing`, by entity id and field; and
        `requests`.

        Args:
            indent: as for `Panel.to_json`; so are the errors.
        """
        _indent("indent", indent)
        failed = {
            entity_id: {
                "error": type(error).__name__,
                "message": str(error),
                "status": getattr(error, "status", None),
                "code": getattr(error, "code", None),
            }
            for entity_id, error in self.failed.items()
        }
        rest = {"failed": failed, "missing": self.missing, "requests": self.requests}
        # Texts, and joined once: a large panel has 50 MB.
        text = "".join(
            (
                '{"panels":[',
                ",".join(panel.to_json() for panel in self),
                "]",
                *(
                    f',"{name}":{document.to_json(value)}'
                    for name, value in rest.items()
                ),
                "}",
            )
        )
        return document.indented(text, indent)

    def rows(self, unit: Unit | None = None) -> list[Row]:
        """Return how people read each series of each panel, as `Panel.rows` does, in
        one unit.

        Raises:
            ArgumentError: `unit` is not one that `Panel.rows` takes.
        """
        return rows_of((panel._grid for panel in self), unit)

    def latest(self, n: int = 1) -> Latest:
        """Return the last values of each series of each panel, as `Panel.latest`
        does.
        """
        return latest([*self], n)

    def to_csv(self, *, empty: bool = True, raw: bool = False) -> str:
        """Return CSV of all panels, as `Panel.to_csv` does; each line begins with the
        entity.
        """
        return to_csv([*self], empty=empty, raw=raw, entities=True)

    def show(
        self,
        unit: Unit | None = None,
        width: int | None = None,
        *,
        all_series: bool = False,
        all_periods: bool = False,
        empty: bool = False,
    ) -> Shown:
        """Return the table that `str` and notebooks show, as `Panel.show` does.

        Raises:
            ArgumentError: `unit` or `width` is not one that `Panel.show` takes.
        """
        return show(
            [*self],
            self._below,
            unit,
            width,
            all_series=all_series,
            all_periods=all_periods,
            empty=empty or not all_series,
        )

    def _below(self) -> list[str]:
        return [*self.notes, counted(self.requests, "request")]

    def __str__(self) -> str:
        return str(self.show())

    def __repr__(self) -> str:
        failed = f", {len(self.failed):,} failed" if self.failed else ""
        return f"<Comparison of {counted(len(self), 'entity', 'entities')}{failed}>"

    def _repr_html_(self) -> str:
        return self.show()._repr_html_()
