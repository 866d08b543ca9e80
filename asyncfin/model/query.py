"""One request's selection, with the caps of spec 4.3 and 8."""

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any, Literal, TypeAlias

from attrs import asdict, field, frozen

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

check_value_version = partial(
    checks.one_of(*VALUE_VERSIONS).as_selection_error(), "value_version"
)
check_dataset_id = partial(
    checks.text("a dataset_id").optional().as_selection_error(), "expected_dataset_id"
)
check_page_size = partial(
    checks.whole_number(1, MAX_PAGE_SIZE).as_selection_error(), "page_size"
)


def _read_ids(value: OneOf | None) -> Any:
    """Read a str as one id, a collection as its members; the checks reject others."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, Iterable):
        return tuple(value)
    return value


def _check_entries(name: str, entries: object, kind: type, cap: int) -> None:
    """Check that there are 1 to so many entries of a class, each once."""
    if not isinstance(entries, tuple):
        entries = (entries,)
    for entry in entries:
        if not isinstance(entry, kind):
            raise SelectionError(
                f"{name} must be a collection of str, not {checks.short_repr(entry)}"
            )
    if not 1 <= len(entries) <= cap:
        raise SelectionError(
            f"{name} must have 1 to {cap} entries, not {len(entries)} (spec 8)"
        )
    (entry, count), *_ = Counter(entries).most_common(1)
    if count > 1:
        text = format_path(entry) if isinstance(entry, tuple) else entry
        raise SelectionError(f"{name} must be distinct: {text!r} is named twice")


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

    metric_ids: tuple[str, ...] = field(converter=_read_ids)
    scope_combinations: tuple[ScopePath, ...] = field(converter=as_paths)
    periods: Resolved
    reporting_group_ids: tuple[str, ...] | None = field(
        default=None, converter=_read_ids
    )
    value_version: ValueVersion = "original"
    expected_dataset_id: str | None = None

    def __attrs_post_init__(self) -> None:
        _check_entries("metric_ids", self.metric_ids, str, MAX_METRIC_IDS)
        paths, groups = self.scope_combinations, self.reporting_group_ids
        _check_entries("scope_combinations", paths, tuple, MAX_SCOPE_COMBINATIONS)
        for path in paths:
            if len(path) > MAX_PATH_ENTRIES:
                raise SelectionError(
                    "each path of scope_combinations must have at most "
                    f"{MAX_PATH_ENTRIES} entries, not {len(path)} (spec 8)"
                )
        if groups is not None:
            _check_entries("reporting_group_ids", groups, str, MAX_REPORTING_GROUP_IDS)
        if not isinstance(self.periods, (Exact, FiscalRange, Trailing)):
            raise SelectionError(
                f"periods must be Exact, FiscalRange or Trailing, not {self.periods!r};"
                " rules are for Client.query, which knows the catalogue"
            )
        # Open ends are those of a catalogue, which a single request does not know.
        ends = asdict(self.periods, recurse=False).values()
        if isinstance(self.periods, FiscalRange) and None in ends:
            raise SelectionError(
                f"periods must have a start and an end in a Query, not {self.periods!r}"
            )
        check_value_version(self.value_version)
        check_dataset_id(self.expected_dataset_id)
