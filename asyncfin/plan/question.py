"""What is asked of one entity, as one value: checked once, and passed on from the client to the plan."""

from __future__ import annotations

from collections.abc import Hashable

from attrs import frozen

from asyncfin.checks import flag, seconds
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.period import PeriodSelection, check_period_selection
from asyncfin.model.query import ValueVersion, check_value_version
from asyncfin.model.select import Select, check_select
from asyncfin.wire.protocol import check_entity_id

_seconds_or_none = seconds.optional()


@frozen
class Question:
    """Which series, over which periods, in which version.

    Attributes:
        source: an entity id, or a Catalogue: then no other publication will do.
        select: which series.
        periods: `Exact`, `FiscalRange`, `Trailing`, `Annual` or `Quarterly`.
        value_version: ``"original"`` or ``"latest_restated"``.
        max_age: for how many seconds a publication counts as the current one after it was confirmed.
            None: as long as the client says.
        fill_cache: whether the client's cache, if it has one, may keep what is read. What it holds is used
            all the same.

    Raises:
        SelectionError: a field is not as described.
    """

    source: str | Catalogue
    select: Select
    periods: PeriodSelection
    value_version: ValueVersion = "original"
    max_age: float | None = None
    fill_cache: bool = True

    def __attrs_post_init__(self) -> None:
        check_entity_id(self.entity_id)
        check_select(self.select)
        check_period_selection(self.periods)
        check_value_version(self.value_version)
        _seconds_or_none("max_age", self.max_age)
        flag("fill_cache", self.fill_cache)

    @property
    def entity_id(self) -> str:
        """The entity that is asked."""
        return self.source.entity_id if isinstance(self.source, Catalogue) else self.source

    @property
    def key(self) -> Hashable:
        """What two questions have in common if one answer does for both."""
        # By identity: a Catalogue has thousands of series, and hashing them would take longer than asking.
        source = id(self.source) if isinstance(self.source, Catalogue) else self.source
        key = (source, self.select, self.periods, self.value_version, self.max_age, self.fill_cache)
        try:
            hash(key)
        except TypeError:  # a predicate that can't be compared is like no other
            return id(self)
        return key
