"""One request's selection, with the caps of spec 4.3 and 8."""

from collections.abc import Iterable, Sized
from functools import partial
from typing import Literal, TypeAlias

from attrs import field, frozen

from asyncfin import checks
from asyncfin.errors import SelectionError
from asyncfin.model.scope import ScopePath, as_paths, format_path
from asyncfin.model.select import OneOf
from asyncfin.model.selection import Exact, FiscalRange, Resolved, Trailing

# The caps of spec 8; checked here, so that exceeding one costs no request.
MAX_METRIC_IDS = 50
MAX_SCOPE_COMBINATIONS = 50
MAX_PATH_ENTRIES = 20
MAX_REPORTING_GROUP_IDS = 50
MAX_PAGE_SIZE = 100
ValueVersion: TypeAlias = Literal["original", "latest_restated"]
VALUE_VERSIONS: tuple[ValueVersion, ...] = ("original", "latest_restated")
# Which requests a bucket grants first when several wait.
Lane: TypeAlias = Literal["interactive", "bulk"]
LANES: tuple[Lane, ...] = ("interactive", "bulk")

check_lane = partial(checks.one_of(*LANES), "lane")
check_value_version = partial(
    checks.one_of(*VALUE_VERSIONS).as_selection_error(), "value_version"
)
check_dataset_id = partial(
    checks.text("a dataset_id").optional().as_selection_error(), "expected_dataset_id"
)
check_page_size = partial(
    checks.whole_number(1, MAX_PAGE_SIZE).as_selection_error(), "page_size"
)


def _ids(value: OneOf) -> tuple[str, ...]:
    """Read a str as one id, a collection as its members; `_check_ids` refuses the
    rest.
    """
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, Iterable) else value


# Not attrs' own `optional`, whose argument type checkers take for Any.
def _ids_or_none(value: OneOf | None) -> tuple[str, ...] | None:
    return None if value is None else _ids(value)


def _check_ids(name: str, ids: object, cap: int) -> None:
    if not isinstance(ids, tuple):
        raise SelectionError(
            f"{name} must be a collection of str, not {checks.short_repr(ids)}"
        )
    _check_count(name, ids, cap)
    for entry in ids:
        if not isinstance(entry, str):
            raise SelectionError(
                f"{name} must contain str, not {checks.short_repr(entry)}"
            )
    _check_distinct(name, ids)


def _check_count(name: str, items: Sized, cap: int) -> None:
    if not 1 <= len(items) <= cap:
        raise SelectionError(
            f"{name} must have 1 to {cap} entries, not {len(items)} (spec 8)"
        )


def _check_distinct(name: str, items: tuple[str | ScopePath, ...]) -> None:
    if len(set(items)) < len(items):
        twice = next(item for item in items if items.count(item) > 1)
        shown = twice if isinstance(twice, str) else format_path(twice)
        raise SelectionError(f"{name} must be distinct: {shown!r} is named twice")


@frozen
class Query:
    """What one query request selects (spec 4.3): the cross product of metrics and
    paths, in some groups.

    Args:
        metric_ids: 1 to 50 distinct metrics.
        scope_combinations: 1 to 50 distinct, complete scope paths of at most 20
            entries, in the forms that `Select` takes.
        periods: `Exact`, `FiscalRange` with both ends, or `Trailing`.
        reporting_group_ids: up to 50 distinct groups. None: all.
        value_version: ``"original"`` or ``"latest_restated"``.
        expected_dataset_id: the publication to read. None: whichever is current.

    Raises:
        SelectionError: a cap is exceeded, something is named twice, or a field has a
            wrong value.
    """

    metric_ids: tuple[str, ...] = field(converter=_ids)
    scope_combinations: tuple[ScopePath, ...] = field(converter=as_paths)
    periods: Resolved
    reporting_group_ids: tuple[str, ...] | None = field(
        default=None, converter=_ids_or_none
    )
    value_version: ValueVersion = "original"
    expected_dataset_id: str | None = None

    def __attrs_post_init__(self) -> None:
        _check_ids("metric_ids", self.metric_ids, MAX_METRIC_IDS)
        _check_count(
            "scope_combinations", self.scope_combinations, MAX_SCOPE_COMBINATIONS
        )
        _check_distinct("scope_combinations", self.scope_combinations)
        for path in self.scope_combinations:
            if len(path) > MAX_PATH_ENTRIES:
                raise SelectionError(
                    "each path of scope_combinations must have at most "
                    f"{MAX_PATH_ENTRIES} entries,"
                    f" not {len(path)} (spec 8)"
                )
        if self.reporting_group_ids is not None:
            _check_ids(
                "reporting_group_ids", self.reporting_group_ids, MAX_REPORTING_GROUP_IDS
            )
        if not isinstance(self.periods, (Exact, FiscalRange, Trailing)):
            raise SelectionError(
                f"periods must be Exact, FiscalRange or Trailing, not {self.periods!r};"
                " rules are for Client.query, which knows the catalogue"
            )
        # Open ends are those of a catalogue, which a single request does not know.
        if isinstance(self.periods, FiscalRange) and None in (
            self.periods.start,
            self.periods.end,
        ):
            raise SelectionError(
                f"periods must have a start and an end in a Query, not {self.periods!r}"
            )
        check_value_version(self.value_version)
        check_dataset_id(self.expected_dataset_id)
