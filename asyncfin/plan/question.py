"""The question about one entity, as one value that is checked once and passed from the
client to the plan.
"""

from __future__ import annotations

from collections.abc import Hashable

from attrs import field, frozen

from asyncfin.checks import check_entity_id, flag, seconds_or_none
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.judge import Judged, Missing, has_nothing, judge
from asyncfin.model.query import ValueVersion, check_value_version
from asyncfin.model.select import Select, check_select
from asyncfin.model.selection import (
    Exact,
    PeriodSelection,
    Resolved,
    check_period_selection,
    is_open,
    resolve,
)
from asyncfin.model.series import CatalogueSeries


@frozen
class Question:
    """Which series, over which periods, in which version.

    Raises:
        SelectionError: a field is wrong.
    """

    # An entity id, or a Catalogue: then no other publication will do.
    source: str | Catalogue
    select: Select
    periods: PeriodSelection
    value_version: ValueVersion = "original"
    # For how many seconds a publication counts as the current one after it was
    # confirmed, or None for the client's.
    max_age: float | None = None
    # whether the client's cache may store what is read; what it has is used anyway
    fill_cache: bool = True
    # whether ids, words and periods that the catalogue does not have are ignored
    allow_missing: bool = False
    # Kept for the catalogue that it was judged in last: planning and the answer read
    # the same judgement.
    _judgement: Judged | None = field(default=None, init=False, repr=False, eq=False)

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
        if isinstance(self.source, Catalogue):
            return self.source.entity_id
        return self.source

    @property
    def key(self) -> Hashable:
        """A key that two questions share if one answer serves both."""
        source: Hashable = self.source
        if isinstance(self.source, Catalogue):
            # By identity: it has thousands of series, and hashing them would take
            # longer than a request.
            source = id(self.source)
        key = (
            source,
            self.select,
            self.periods,
            self.value_version,
            self.max_age,
            self.fill_cache,
            self.allow_missing,
        )
        try:
            hash(key)
        except TypeError:  # a predicate that cannot be hashed equals no other
            return id(self)
        return key

    def resolve(
        self, catalogue: Catalogue
    ) -> tuple[tuple[CatalogueSeries, ...], Resolved | None]:
        """Return the series and periods that the question means in a catalogue.

        The periods are None if nothing is to be requested: if the catalogue has no
        series, if it has no periods and the question names none or, with
        `allow_missing`, if the catalogue has nothing of the question.

        Raises:
            SelectionError: the catalogue does not have all of the question.
        """
        judgement = self.judge(catalogue)
        if judgement.missing and (judgement.is_ambiguous or not self.allow_missing):
            raise judgement.error()
        if self.allow_missing:
            has_none = has_nothing(self.select, judgement.missing)
            if has_none or not _has_periods(catalogue, self.periods):
                return (), None
        if not catalogue.series or (not catalogue.periods and is_open(self.periods)):
            return judgement.series, None
        return judgement.series, catalogue.resolve(self.periods)

    def judge(self, catalogue: Catalogue) -> Judged:
        """Resolve the Select in a catalogue."""
        judgement = self._judgement
        if judgement is None or judgement.catalogue is not catalogue:
            judgement = judge(catalogue, self.select)
            object.__setattr__(self, "_judgement", judgement)
        return judgement

    def missing(self, catalogue: Catalogue) -> Missing:
        """Return the ids, words and periods of the question that a catalogue does not
        have, by field.

        As `Catalogue.missing`, and ``periods``: the labels of an `Exact`, or one text
        for a rule that selects no period.
        """
        missing = dict(self.judge(catalogue).missing)
        labels: list[str] = []
        if isinstance(self.periods, Exact):
            catalogue_periods = set(catalogue.periods)
            for period in self.periods.periods:
                if period not in catalogue_periods:
                    labels.append(period.label)
        elif not _has_periods(catalogue, self.periods):
            labels.append(str(self.periods))
        if labels:
            missing["periods"] = tuple(labels)
        return missing


def _has_periods(catalogue: Catalogue, periods: PeriodSelection) -> bool:
    if not catalogue.periods:
        return is_open(periods)
    return resolve(periods, catalogue.periods) is not None
