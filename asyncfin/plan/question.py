"""The question about one entity, as one value that is checked once and passed from the client to the plan."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping

from attrs import frozen

from asyncfin.checks import flag, seconds_or_none
from asyncfin.model.catalogue import PICKED, Catalogue
from asyncfin.model.period import Exact, PeriodSelection, Resolved, check_period_selection, describe, resolve
from asyncfin.model.query import ValueVersion, check_value_version
from asyncfin.model.scope import format_path
from asyncfin.model.select import Select, check_select
from asyncfin.model.series import CatalogueSeries
from asyncfin.wire.protocol import check_entity_id

Missing = Mapping[str, tuple[str, ...]]


@frozen
class Question:
    """Which series, over which periods, in which version; SelectionError: a field is wrong."""

    source: str | Catalogue  # an entity id, or a Catalogue: then no other publication will do
    select: Select
    periods: PeriodSelection
    value_version: ValueVersion = "original"
    # For how many seconds a publication counts as the current one after it was confirmed; None: the client's.
    max_age: float | None = None
    fill_cache: bool = True  # whether the client's cache may keep what is read; what it has is used anyway
    known_only: bool = False  # whether ids, words and periods that are not there are ignored; else errors

    def __attrs_post_init__(self) -> None:
        check_entity_id(self.entity_id)
        check_select(self.select)
        check_period_selection(self.periods)
        check_value_version(self.value_version)
        seconds_or_none("max_age", self.max_age)
        flag("fill_cache", self.fill_cache)

    @property
    def entity_id(self) -> str:
        """The id of the entity."""
        return self.source.entity_id if isinstance(self.source, Catalogue) else self.source

    @property
    def key(self) -> Hashable:
        """A key that two questions share if one answer serves both, apart from `known_only`."""
        # By identity: a Catalogue has thousands of series, and hashing them would take longer than a request.
        source = id(self.source) if isinstance(self.source, Catalogue) else self.source
        key = (source, self.select, self.periods, self.value_version, self.max_age, self.fill_cache)
        try:
            hash(key)
        except TypeError:  # a predicate that cannot be hashed equals no other
            return id(self)
        return key

    def wanted(self, catalogue: Catalogue) -> tuple[tuple[CatalogueSeries, ...], Resolved | None]:
        """Return the series and periods that the question means in a catalogue, or raise SelectionError.

        The periods are None if the catalogue has no series or, with `known_only`, nothing of the question.
        """
        if not self.known_only:
            series = catalogue.select(self.select)
            return series, catalogue.resolve(self.periods) if catalogue.series else None
        known = catalogue.narrowed(self.select)
        if not catalogue.series or known is None or not _has_periods(catalogue, self.periods):
            return (), None
        return catalogue.matching(known), catalogue.resolve(self.periods)

    def missing(self, catalogue: Catalogue) -> Missing:
        """Return the ids, words and periods of the question that a catalogue does not have, by field.

        As `Catalogue.missing`, and ``periods``: the labels of an `Exact`, or one text for a rule that selects
        no period. A series that has no text for a condition is named by its id in the condition's field.
        """
        missing = dict(catalogue.missing(self.select))
        for field, ids in catalogue.undecided(self.select).items():
            missing[field] = (*missing.get(field, ()), *ids)
        if periods := _missing_periods(catalogue, self.periods):
            missing["periods"] = periods
        return missing


def has_nothing(select: Select, missing: Missing) -> bool:
    """Return whether an entity has no series of a Select, given what `Question.missing` returned for it.

    That is so if it has none of the ids or words of a field, or if no series meets all conditions. Missing
    periods do not count.
    """
    return any(_excludes_all(select, name, names) for name, names in missing.items())


def _excludes_all(select: Select, name: str, names: Collection[str]) -> bool:
    """Return whether what is missing in a field excludes all series; it may include ids of single series."""
    match name:
        case "select":
            return True
        case "label":
            return select.label in names
        case "where":
            return (select.name or "where") in names
        case "periods":
            return False
    if name == PICKED:
        return len(names) == len(select.picked or ())
    given = [format_path(each) if isinstance(each, tuple) else each for each in getattr(select, name)]
    # A series must have exactly the given scope groups, but any one of the values of other fields.
    return (any if name == "scope_group_ids" else all)(each in names for each in given)


def _has_periods(catalogue: Catalogue, periods: PeriodSelection) -> bool:
    # Trailing months resolve to themselves, whatever the catalogue has.
    return bool(catalogue.periods) and resolve(periods, catalogue.periods) is not None


def _missing_periods(catalogue: Catalogue, periods: PeriodSelection) -> tuple[str, ...]:
    if isinstance(periods, Exact):
        listed = set(catalogue.periods)
        return tuple(each.label for each in periods.periods if each not in listed)
    return () if _has_periods(catalogue, periods) else (describe(periods),)
