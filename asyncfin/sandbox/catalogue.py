"""Reading the catalogue (spec 4.2): pages of series, gathered under their reporting
groups.
"""

from __future__ import annotations

import json
import re
from itertools import groupby
from operator import itemgetter
from typing import Any

from msgspec.json import encode

from asyncfin.sandbox.cursor import find_start, hash_selection
from asyncfin.sandbox.dataset_file import make_period
from asyncfin.sandbox.dialect import Dialect
from asyncfin.sandbox.encode import open_json
from asyncfin.sandbox.query import cut_page, make_cursor, write_cursor
from asyncfin.sandbox.reader import query_parameters, read_fields
from asyncfin.sandbox.schema import CatalogueParameters
from asyncfin.sandbox.store import Current, Store


def write_catalogue_page(
    query: str, current: Current, store: Store, dialect: Dialect
) -> bytes:
    """Return the JSON of the page that a query string asks for."""
    texts: dict[str, Any] = query_parameters(query)
    # int() would take " 1", "+1" and "1_0" too.
    if re.fullmatch(r"[0-9]{1,9}", texts.get("limit", "")):
        texts["limit"] = int(texts["limit"])
    parameters = read_fields(texts, CatalogueParameters)
    # Any other limit may follow on the next page: the cursor counts series, not pages.
    bound_to = hash_selection(f"catalogue {current.entity_id}".encode())
    position = find_start(
        parameters.cursor,
        bound_to,
        parameters.expected_dataset_id,
        current.dataset_id,
        dialect,
    )
    page = cut_page(position, store.size(current.number), parameters.limit, dialect)
    rows = store.read_catalogue(
        current.number, page.series.start, page.series.stop - page.series.start
    )
    cursor = make_cursor(page, bound_to, current.dataset_id)
    scope_groups = _list_scope_groups(
        [row[1] for row in rows], position.page, current, dialect
    )
    return b'%b,"periods":%b,"scope_groups":%b,"groups":[%b]%b}' % (
        current.head,
        encode(list(map(make_period, current.periods))),
        encode(scope_groups),
        _list_groups(rows, current),
        write_cursor(cursor, dialect),
    )


def _list_groups(rows: list[tuple[str, bytes]], current: Current) -> bytes:
    """Return the reporting groups of the page's series (spec 4.2 rule 1)."""
    groups = []
    # Rows are in catalogue order, so those of a group are adjacent and groupby needs no
    # sorting.
    for group_id, members in groupby(rows, key=itemgetter(0)):
        series = b",".join(map(itemgetter(1), members))
        head = open_json(current.groups[group_id])
        groups.append(b'%b,"series":[%b]}' % (head, series))
    return b",".join(groups)


def _list_scope_groups(
    series: list[bytes], page: int, current: Current, dialect: Dialect
) -> list[dict[str, Any]]:
    # The spec does not say on which page a scope group is listed, so a client has to
    # join them.
    if dialect.scope_groups == "first":
        if page > 0:
            return []
    elif dialect.scope_groups == "used":
        ids = set()
        for text in series:
            for ref in json.loads(text)["scopes"]:
                ids.add(ref["scope_group_id"])
        groups = current.scope_groups
        return [group for group in groups if group["scope_group_id"] in ids]
    return list(current.scope_groups)
