"""Panels next to each other: the Comparison of multiple entities."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import filterfalse
from operator import attrgetter

from attrs import field, frozen

from asyncfin.errors import AsyncfinError, printable, shorten
from asyncfin.model.judge import Missing, explain, has_nothing, name_missing
from asyncfin.model.period import Period
from asyncfin.model.query import ValueVersion
from asyncfin.model.select import Select
from asyncfin.table import document
from asyncfin.table.grid import Grid, group_pairs
from asyncfin.table.notes import (
    LATEST,
    MOST_NAMED,
    MOST_PERIODS_NAMED,
    describe_rows,
)
from asyncfin.table.panel import Panel, Periods
from asyncfin.table.result import Result
from asyncfin.table.rows import rows_of
from asyncfin.words import counted, entity_names, listed

# How much of a note is shown: a name of the service can have a megabyte.
_LONGEST = 10_000


@frozen(eq=False, repr=False)
class Comparison(Result):
    """What several entities have of one query, side by side.

    Iterating yields each `Panel`, in the order of the query, ``len`` counts them,
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
    # Of entities that failed, as far as known.
    _names: Mapping[str, str] = field(factory=dict)

    _layout = "wide"
    _has_entities = True

    @property
    def _grids(self) -> Sequence[Grid]:
        return [panel._grid for panel in self]

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
        raise KeyError(
            f"{entity_id!r} is not an entity of this comparison; its keys are entity "
            "ids, as in `panels`"
        )

    @property
    def periods(self) -> tuple[Period, ...]:
        """The periods of all panels, oldest first."""
        periods = set().union(*map(attrgetter("periods"), self))
        return Periods(sorted(periods))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the figures must know, a line each.

        First each entity that failed; then what no entity has, and what each does not
        have; the notes of each panel, such as its gaps; that fiscal periods of entities
        can differ; differing descriptions.
        """
        lines = []
        for line in self._write_notes():
            lines.append(printable(shorten(line, _LONGEST)))
        return tuple(lines)

    def _write_notes(self) -> Iterator[str]:
        for entity_id, error in self._describe_failed().items():
            yield f"{self._names.get(entity_id) or entity_id}: {error}"
        if self.unknown:
            catalogue = next(iter(self)).catalogue
            yield explain(catalogue, self.unknown, "no entity")
        yield from self.lacking()
        for line, companies in self._list_companies(_list_notes).items():
            yield f"{listed(companies, MOST_NAMED)}: {line}"
        if len(self) > 1:
            yield "the same fiscal period of two entities can be different months"
        yield from describe_rows(rows_of(self._grids), all_rows=False)

    def lacking(self) -> Iterator[str]:
        """Yield which companies lack something, a line for each kind.

        Of the ids and words of one field a company with values needs one only:
        companies report under other tags.
        """
        for kind, companies in self._list_companies(self._list_lacking).items():
            verb = "has"
            if len(companies) > 1:
                verb = "have"
            yield f"{listed(companies, MOST_NAMED)} {verb} no {kind}"

    def _list_companies(
        self, list_lines: Callable[[Panel], Iterable[str]]
    ) -> dict[str, list[str]]:
        """Return the names of the companies that have a line, by line."""
        names = entity_names(map(attrgetter("catalogue"), self))
        pairs = []
        for panel in self:
            for line in list_lines(panel):
                pairs.append((line, names[panel.catalogue.entity_id]))
        return group_pairs(pairs)

    def _list_lacking(self, panel: Panel) -> Iterator[str]:
        """Yield what a company does not have and another one has."""
        missing = self.missing.get(panel.catalogue.entity_id, {})
        for name, ids in missing.items():
            unknown = self.unknown.get(name, ())
            remaining = tuple(filterfalse(unknown.__contains__, ids))
            if not remaining:
                continue
            # A user who picks series means each of them.
            needs_each = name == "series" or not panel.value_count
            if name == "periods":
                yield listed(remaining, MOST_PERIODS_NAMED)
            elif needs_each or has_nothing(self.select, {name: ids}):
                yield name_missing({name: remaining})
        if len(panel) and not panel.value_count and "periods" not in missing:
            yield "value in these periods"

    def _describe_failed(self) -> dict[str, str]:
        failures = {}
        for entity_id, error in self.failed.items():
            failures[entity_id] = f"{type(error).__name__}: {error}"
        return failures

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the comparison as one JSON document.

        It has `panels`, the documents of `Panel.to_json` in the order of the question;
        `failed`, by entity id ``error`` (the class), ``message``, ``status`` and
        ``code`` (null without a response); `missing`, by entity id and field; and
        `requests`.

        Args:
            indent: as for `Panel.to_json`; so are the errors.
        """
        errors = {}
        for entity_id, error in self.failed.items():
            errors[entity_id] = {
                "error": type(error).__name__,
                "message": str(error),
                "status": getattr(error, "status", None),
                "code": getattr(error, "code", None),
            }
        # Texts, and joined once: a large panel has 50 MB.
        panels = ",".join(map(Panel.to_json, self))
        fields = {
            "failed": errors,
            "missing": self.missing,
            "requests": self.requests,
        }
        tail = document.encode(fields)[1:]
        return document.write_indented(f'{{"panels":[{panels}],{tail}', indent)

    def _write_lines_below(self) -> Sequence[str]:
        return [*self.notes, counted(self.requests, "request")]

    def __repr__(self) -> str:
        entities = counted(len(self), "entity", "entities")
        failures = ""
        if self.failed:
            failures = f", {len(self.failed):,} failed"
        return f"<Comparison of {entities}{failures}>"


def _list_notes(panel: Panel) -> Iterator[str]:
    """Yield the notes of a panel that those of its comparison do not contain."""
    for line in panel.notes:
        # What a company lacks shows why there is no value.
        if panel.value_count or line == LATEST:
            yield line
