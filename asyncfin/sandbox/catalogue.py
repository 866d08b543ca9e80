"""Reading the catalogue (spec 4.2): pages of series, gathered under their reporting groups."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

from attrs import frozen

from asyncfin.sandbox.cursor import fingerprint, start_of
from asyncfin.sandbox.dialect import Dialect
from asyncfin.sandbox.encode import open_json
from asyncfin.sandbox.fields import Issues, query_parameters, whole_number
from asyncfin.sandbox.json_place import period_object
from asyncfin.sandbox.query import cursor_member, cut_page, next_cursor
from asyncfin.sandbox.request import Request, encode
from asyncfin.sandbox.selection import DEFAULT_LIMIT, MAX_LIMIT
from asyncfin.sandbox.store import Current, Store


@frozen
class CatalogueRequest:
    """The parameters of spec 4.2."""

    expected_dataset_id: str | None
    limit: int
    cursor: str | None


def read_catalogue_request(request: Request) -> CatalogueRequest:
    """The parameters; raises RefusedError 400 naming every wrong one."""
    issues = Issues()
    given = query_parameters(request.query, ("expected_dataset_id", "limit", "cursor"), issues)
    expected, limit = given.get("expected_dataset_id"), given.get("limit", str(DEFAULT_LIMIT))
    asked = CatalogueRequest(
        None if expected is None else issues.uuid(expected, "expected_dataset_id"),
        issues.integer(whole_number(limit), "limit", 1, MAX_LIMIT) or DEFAULT_LIMIT,
        given.get("cursor"),
    )
    issues.refuse()
    return asked


def catalogue_page(asked: CatalogueRequest, current: Current, store: Store, dialect: Dialect) -> bytes:
    """The JSON of one page; raises RefusedError 409 for an old pin or cursor, 400 for a foreign cursor."""
    bound_to = fingerprint(f"catalogue {current.entity_id}")
    position = start_of(asked.cursor, bound_to, asked.expected_dataset_id, current.dataset_id, dialect)
    page = cut_page(position, store.size(current.number), asked.limit, dialect)
    rows = store.catalogue_series(current.number, page.series.start, page.series.stop - page.series.start)
    cursor = next_cursor(page, bound_to, current.dataset_id)
    scope_groups = _scope_groups([row[1] for row in rows], position.page, current, dialect)
    return b'%b,"periods":%b,"scope_groups":%b,"groups":[%b]%b}' % (
        current.head,
        encode([period_object(period) for period in current.periods]),
        encode(scope_groups),
        _groups(rows, current),
        cursor_member(cursor, dialect),
    )


def _groups(rows: list[tuple[str, bytes]], current: Current) -> bytes:
    """The reporting groups of the page's series (spec 4.2 rule 1)."""
    groups = []
    for group_id, members in groupby(rows, key=lambda row: row[0]):
        series = b",".join(encoded for _, encoded in members)
        groups.append(b'%b,"series":[%b]}' % (open_json(current.groups[group_id]), series))
    return b",".join(groups)


def _scope_groups(series: list[bytes], page: int, current: Current, dialect: Dialect) -> list[dict[str, Any]]:
    if dialect.scope_groups == "first":
        return list(current.scope_groups) if page == 0 else []
    if dialect.scope_groups == "used":
        refs = [ref for encoded in series for ref in json.loads(encoded)["scopes"]]
        used = {ref["scope_group_id"] for ref in refs}
        return [group for group in current.scope_groups if group["scope_group_id"] in used]
    return list(current.scope_groups)
