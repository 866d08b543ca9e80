"""An entity's dataset as it is read from a service, in the form of a file that the
sandbox serves.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from asyncfin import Client, Panel, read_entity
from asyncfin.clock import utc_text
from asyncfin.errors import AsyncfinError
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.period import Period
from asyncfin.model.select import Select
from asyncfin.model.selection import FiscalRange
from asyncfin.model.value import Value
from asyncfin.sandbox import BrokenDatasetError, DatasetFile, Publication, load
from asyncfin.sandbox.dataset import dump


async def recorded(client: Client, entity_id: str) -> DatasetFile:
    """Return the current publication of an entity, read as a whole."""
    answer = await read_entity(
        client, entity_id, Select(), FiscalRange(), value_version="both"
    )
    original, restated = answer.panel, answer.restated
    assert original is not None
    assert restated is not None
    catalogue = original.catalogue
    # A value can be at a period that the catalogue does not list.
    periods = sorted({*catalogue.periods, *original.periods, *restated.periods})
    publication = Publication(
        catalogue.entity_id,
        catalogue.name,
        catalogue.dataset_id,
        utc_text(catalogue.created_timestamp),
        tuple((each.year, each.end_month, each.duration_months) for each in periods),
        _scope_groups(catalogue),
        _plain(catalogue.groups),
        {
            each.series_id: _rows(each.series_id, periods, original, restated)
            for each in original
        },
    )
    return DatasetFile(catalogue.entity_id, catalogue.name, (publication,))


def _scope_groups(catalogue: Catalogue) -> tuple[Any, ...]:
    """Return the scope groups in the shape of the wire, with the scopes that only a
    series' path names.
    """
    groups = {
        group["scope_group_id"]: group | {"scopes": list(group["scopes"])}
        for group in _plain(catalogue.scope_groups)
    }
    for scope in dict.fromkeys(
        scope for series in catalogue.series for scope in series.scopes
    ):
        unnamed = {"name": "", "description": ""}
        group = groups.setdefault(
            scope.scope_group_id,
            {"scope_group_id": scope.scope_group_id, **unnamed, "scopes": []},
        )
        if scope.scope_id not in {known["scope_id"] for known in group["scopes"]}:
            group["scopes"].append(
                {"scope_id": scope.scope_id, **unnamed, "role": "", "aliases": ()}
            )
    return tuple(
        group | {"scopes": tuple(group["scopes"])} for group in groups.values()
    )


def written(dataset: DatasetFile) -> bytes:
    """Return the file of a dataset, after reading it as the sandbox does.

    Raises:
        AsyncfinError: the sandbox would reject it, or serve something else.
    """
    try:
        content = dump(dataset)
        if _plainly(load(content)) == _plainly(dataset):
            return content
        reason = "the file differs from what was read"
    except (BrokenDatasetError, ValueError) as error:
        reason = str(error)
    raise AsyncfinError(f"{dataset.entity_id} can't be recorded: {reason}")


def _plainly(dataset: DatasetFile) -> bytes:
    """Return a dataset in a form in which lists equal tuples, and the order of keys
    does not matter.
    """
    return msgspec.json.encode(dataset, order="sorted")


def _plain(objects: Any) -> Any:
    """Return a catalogue's objects in the shape of the wire, without the fields that
    are not there.
    """
    if isinstance(objects, Mapping):
        return {
            name: _plain(each) for name, each in objects.items() if each is not None
        }
    if isinstance(objects, list | tuple):
        return tuple(map(_plain, objects))
    return (
        objects
        if isinstance(objects, str | int | float)
        else _plain(msgspec.to_builtins(objects))
    )


def _rows(
    series_id: str, periods: Sequence[Period], original: Panel, restated: Panel
) -> tuple[Any, ...]:
    """Return the rows of a series: the period's index, the original value, and the
    restated one.
    """
    versions = [dict(panel[series_id].observations()) for panel in (original, restated)]
    rows = []
    for index, at in enumerate(periods):
        first, latest = (_value(values.get(at), at) for values in versions)
        if first or latest:
            # The same value in both versions was never restated.
            rows.append(
                (index, first, None if latest == first else latest or "withdrawn")
            )
    return tuple(rows)


def _value(value: Value | None, at: Period) -> dict[str, Any] | None:
    """Return a value in the shape of the wire; what the service does not state is as
    for a reported value.
    """
    if value is None:
        return None
    report = value.report_period or Period(at.year, at.end_month, 0)
    return {
        "number": value.number,
        "text": value.text,
        "number_format": value.number_format,
        "fill_type": value.fill_type,
        "report_period": {
            "year": report.year,
            "end_month": report.end_month,
            "duration_months": 0,
        },
        "sources": [
            {
                "item_id": each.item_id,
                "row_index": each.row_index or 0,
                "column_index": each.column_index or 0,
            }
            for each in value.sources
        ],
    }
