"""`asyncfin record`: entities' datasets as files that the sandbox serves."""

import sys
from collections.abc import Mapping, Sequence
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from asyncfin.checks import expand_user
from asyncfin.cli.errors import UsageError
from asyncfin.cli.options import Names, Service
from asyncfin.clock import utc_text
from asyncfin.errors import AsyncfinError
from asyncfin.words import counted

if TYPE_CHECKING:
    from asyncfin import Catalogue, Client, Panel, Period, Value
    from asyncfin.sandbox import DatasetFile


async def record(
    *entity_ids: str,
    into: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    names: Names = Names(),
    service: Service = Service(),
) -> None:
    """Write an entity's dataset to a file for the sandbox.

    The file contains the catalogue and all values of both versions, with their
    sources: `Sandbox("acme.json.gz")` and `asyncfin sandbox acme.json.gz` serve
    it. It costs one request for each 100 series, and two for each 100 series of
    which values are read.

      asyncfin record ENTITY_ID > acme.json.gz
      asyncfin record ENTITY_ID ENTITY_ID --into FOLDER

    Args:
        entity_ids: The entities, O- and 32 characters each, or their names.
        into: A folder for a file of each entity, ID.json.gz. Files are replaced as a
            whole.
    """
    entities = names.entity_ids(entity_ids)
    if not entities:
        raise UsageError("no entity is given: give entity ids")
    if into is None and len(entities) > 1:
        raise UsageError(
            "several entities need several files: give a folder for them, --into FOLDER"
        )
    if into is None and sys.stdout.isatty():
        raise UsageError(
            "the file is compressed, not text: write > FILE.json.gz, or --into FOLDER"
        )
    folder = None if into is None else Path(expand_user(str(into)))
    if folder is not None and folder.exists() and not folder.is_dir():
        raise UsageError(
            f"--into {folder} is not a folder: give a folder or a new path"
        )
    service.check()

    from asyncfin.cli.session import connect
    from asyncfin.cli.terminal import replace_file, screen
    from asyncfin.extraction.place import file_name

    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    async with connect(service, "Recording", names) as (client, _):
        for entity_id in entities:
            content = encode_dataset(await read_dataset(client, entity_id))
            if folder is None:
                sys.stdout.buffer.write(content)
            else:
                file = folder / f"{file_name(entity_id)}.json.gz"
                replace_file(file, methodcaller("write", content))
    if folder is not None:
        screen().print(f"{folder}: {counted(len(entities), 'file')}")


async def read_dataset(client: "Client", entity_id: str) -> "DatasetFile":
    """Return the current publication of an entity, read as a whole."""
    from asyncfin import FiscalRange, Select, read_entity
    from asyncfin.sandbox import DatasetFile, Publication

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
        tuple(
            (period.year, period.end_month, period.duration_months)
            for period in periods
        ),
        _scope_groups(catalogue),
        _plain(catalogue.groups),
        {
            series.series_id: _rows(series.series_id, periods, original, restated)
            for series in original
        },
    )
    return DatasetFile(catalogue.entity_id, catalogue.name, (publication,))


def encode_dataset(dataset: "DatasetFile") -> bytes:
    """Return the file of a dataset, after reading it as the sandbox does.

    Raises:
        AsyncfinError: the sandbox would reject it, or serve something else.
    """
    import msgspec

    from asyncfin.sandbox import BrokenDatasetError, load
    from asyncfin.sandbox.dataset import dump

    try:
        content = dump(dataset)
        # In a form in which lists equal tuples, and the order of keys does not matter.
        copies = [
            msgspec.json.encode(copy, order="sorted")
            for copy in (load(content), dataset)
        ]
        if copies[0] == copies[1]:
            return content
        reason = "the file differs from what was read"
    except (BrokenDatasetError, ValueError) as error:
        reason = str(error)
    raise AsyncfinError(f"{dataset.entity_id} can't be recorded: {reason}")


def _scope_groups(catalogue: "Catalogue") -> tuple[Any, ...]:
    """Return the scope groups in the shape of the wire, with the scopes that only a
    series' path names.
    """
    groups = {
        group["scope_group_id"]: group | {"scopes": list(group["scopes"])}
        for group in _plain(catalogue.scope_groups)
    }
    for scope in {scope for series in catalogue.series for scope in series.scopes}:
        group_id, unnamed = scope.scope_group_id, {"name": "", "description": ""}
        group = groups.setdefault(
            group_id, {"scope_group_id": group_id, **unnamed, "scopes": []}
        )
        if scope.scope_id not in {item["scope_id"] for item in group["scopes"]}:
            group["scopes"].append(
                {"scope_id": scope.scope_id, **unnamed, "role": "", "aliases": ()}
            )
    return tuple(
        group | {"scopes": tuple(group["scopes"])} for group in groups.values()
    )


def _plain(objects: Any) -> Any:
    """Return a catalogue's objects in the shape of the wire, without the fields that
    are not there.
    """
    import msgspec

    if isinstance(objects, Mapping):
        return {
            name: _plain(item) for name, item in objects.items() if item is not None
        }
    if isinstance(objects, list | tuple):
        return tuple(map(_plain, objects))
    if isinstance(objects, str | int | float):
        return objects
    return _plain(msgspec.to_builtins(objects))


def _rows(
    series_id: str, periods: Sequence["Period"], original: "Panel", restated: "Panel"
) -> tuple[Any, ...]:
    """Return the rows of a series: the period's index, the original value, and the
    restated one.
    """
    versions = [dict(panel[series_id].observations()) for panel in (original, restated)]
    rows = []
    for index, period in enumerate(periods):
        first, last = (_value(values.get(period), period) for values in versions)
        if first or last:
            # The same value in both versions was never restated.
            restatement = None if last == first else last or "withdrawn"
            rows.append((index, first, restatement))
    return tuple(rows)


def _value(value: "Value | None", period: "Period") -> dict[str, Any] | None:
    """Return a value in the shape of the wire; what the service does not state is as
    for a reported value.
    """
    if value is None:
        return None
    report = value.report_period or period
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
                "item_id": source.item_id,
                "row_index": source.row_index or 0,
                "column_index": source.column_index or 0,
            }
            for source in value.sources
        ],
    }
