"""The responses to replay, in two shapes: full pages made up here, and real pages of
../shared/data.

Both have zeros that are written as floats, and per cent signs in labels. They come with
the catalogue and the plan that asyncfin makes of it; the other contenders send the same
number of requests for the same bytes.
"""

import gzip
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from attrs import frozen

from asyncfin.model.catalogue import Catalogue, ReportingGroup
from asyncfin.model.period import Period
from asyncfin.model.scope import ScopeRef
from asyncfin.model.select import Select
from asyncfin.model.selection import FiscalRange
from asyncfin.model.series import CatalogueSeries
from asyncfin.plan.plan import Plan, make_batches
from asyncfin.plan.question import Question

REAL = Path(__file__).parents[2] / "shared" / "data" / "johnson-johnson-200406.json.gz"
ENTITY_ID = "O-" + "0" * 31 + "1"
DATASET_ID = "00000000-0000-4000-8000-000000000001"
CREATED = "2026-01-01T00:00:00Z"
SPAN = FiscalRange(1900, 2100)
FILLED = 0.6
# A service that writes doubles sends these as 0.0.
ZEROS = 0.02
GROUP = "quarterly.consolidated"

Body = dict[str, Any]


@frozen
class Shape:
    """What is asked and what is answered.

    Attributes:
        plan: asyncfin's plan for the whole catalogue.
        chains: the queries that others send, each followed along its cursors.
        answers: the body for each query and cursor, by `key`.
        values: how many values all series have.
        sent_values: how many all pages of the chains hold; planned batches can overlap.
    """

    name: str
    plan: Plan
    chains: list[Body]
    answers: dict[str, bytes]
    values: int
    sent_values: int
    pages: int

    def __str__(self) -> str:
        size = sum(map(len, self.answers.values())) / len(self.answers) / 1000
        return (
            f"{len(self.chains)} queries, {self.pages} pages of {size:,.0f} kB, "
            f"{self.values:,} values"
        )


def key(body: Body) -> str:
    """Return what distinguishes one page of one query from others."""
    paths = [
        [tuple(ref.values()) for ref in path] for path in body["scope_combinations"]
    ]
    groups = body.get("reporting_group_ids") or []
    return json.dumps(
        [sorted(body["metric_ids"]), sorted(paths), sorted(groups), body.get("cursor")]
    )


def query_body(batches: Iterable[Any]) -> Body:
    """Return the body that asks for what several planned batches ask for."""
    batch_list = list(batches)
    groups = list(
        dict.fromkeys(
            name for batch in batch_list for name in batch.reporting_group_ids or ()
        )
    )
    return {
        "metric_ids": list(
            dict.fromkeys(name for batch in batch_list for name in batch.metric_ids)
        ),
        "scope_combinations": [
            [
                {"scope_group_id": ref.scope_group_id, "scope_id": ref.scope_id}
                for ref in path
            ]
            for path in dict.fromkeys(
                path for batch in batch_list for path in batch.scope_combinations
            )
        ],
        **({"reporting_group_ids": groups} if groups else {}),
        "periods": {
            "mode": "fiscal_range",
            "from": {"year": 1900, "end_month": 1, "duration_months": 0},
            "to": {"year": 2100, "end_month": 12, "duration_months": 0},
        },
        "expected_dataset_id": DATASET_ID,
        "value_version": "original",
        "limit": 100,
    }


class _Values:
    """Made-up `values` arrays as JSON text, a few of each kind used over and over."""

    def __init__(self, periods: int, kinds: int = 60) -> None:
        random = Random(1)
        self.periods = [
            {
                "year": 1990 + number // 4,
                "end_month": number % 4 * 3 + 3,
                "duration_months": 3,
            }
            for number in range(periods)
        ]
        self._arrays = [
            [
                self._value(random, period) if random.random() < FILLED else None
                for period in self.periods
            ]
            for _ in range(kinds)
        ]
        self._texts = [
            json.dumps(array, separators=(",", ":")) for array in self._arrays
        ]
        self._counts = [
            sum(value is not None for value in array) for array in self._arrays
        ]

    @staticmethod
    def _value(random: Random, period: Body) -> Body:
        is_whole = random.random() < 0.5
        number = (
            random.randint(-(10**9), 10**9)
            if is_whole
            else round(random.uniform(-1e9, 1e9), 2)
        )
        number = 0.0 if random.random() < ZEROS else number
        sources = [
            {
                "item_id": f"0000320193-{random.randint(10, 24)}-"
                f"{random.randint(0, 999_999):06d}#t{source_number}",
                "row_index": random.randint(0, 80),
                "column_index": random.randint(0, 9),
            }
            for source_number in range(random.choice((1, 1, 2)))
        ]
        return {
            "number": number,
            "text": f"{number:,}",
            "number_format": "#,##0" if is_whole else "#,##0.00",
            "fill_type": "reported",
            "value_version": "original",
            "report_period": {**period, "duration_months": 0},
            "sources": sources,
        }

    def text(self, place: int) -> str:
        return self._texts[place % len(self._texts)]

    def count(self, place: int) -> int:
        return self._counts[place % len(self._counts)]


def _head(series: CatalogueSeries) -> Body:
    scopes = [
        {"scope_group_id": ref.scope_group_id, "scope_id": ref.scope_id}
        for ref in series.scopes
    ]
    names = ("series_id", "reporting_group_id", "metric_id", "label", "basis")
    fields = {name: getattr(series, name) for name in names}
    return {
        **fields,
        "scopes": scopes,
        "number_format": series.number_format,
        "period_meaning": series.period_meaning,
    }


def _page(
    periods: list[Body],
    series: Iterable[tuple[CatalogueSeries, str]],
    cursor: str | None,
) -> bytes:
    head = {
        "entity_id": ENTITY_ID,
        "name": "Example Company",
        "dataset_id": DATASET_ID,
        "created_timestamp": CREATED,
        "periods": periods,
    }
    rows = [
        json.dumps(_head(item))[:-1] + f',"values":{values}}}'
        for item, values in series
    ]
    tail = f',"next_cursor":"{cursor}"' if cursor else ""
    return (json.dumps(head)[:-1] + f',"series":[{",".join(rows)}]{tail}}}').encode()


def _catalogue(series: Sequence[CatalogueSeries], periods: Iterable[Body]) -> Catalogue:
    groups: dict[str, list[CatalogueSeries]] = {}
    for item in series:
        groups.setdefault(item.reporting_group_id, []).append(item)
    return Catalogue(
        ENTITY_ID,
        "Example Company",
        DATASET_ID,
        datetime(2026, 1, 1, tzinfo=UTC),
        tuple(sorted(Period(**period) for period in periods)),
        (),
        tuple(
            ReportingGroup(
                reporting_group_id=name,
                name=name,
                basis=members[0].basis,
                cadence=name.partition(".")[0],
                series=tuple(members),
            )
            for name, members in groups.items()
        ),
    )


def _planned(catalogue: Catalogue) -> Plan:
    question = Question(catalogue, Select(), SPAN)
    series, periods = question.resolve(catalogue)
    batches = make_batches(catalogue, series, periods, question.value_version)
    return Plan(question, catalogue, periods, series, batches)


def _series(number: int, metric: str, path: str) -> CatalogueSeries:
    return CatalogueSeries(
        series_id=f"S-{number:032x}",
        reporting_group_id=GROUP,
        metric_id=metric,
        label=f"Label of {metric}, % of revenue",
        description="A made-up quantity. Unit: USD.",
        basis="consolidated",
        scopes=(ScopeRef("company", path),),
        number_format="#,##0",
        period_meaning="over_period",
    )


def full(queries: int = 24, pages: int = 2, periods: int = 120) -> Shape:
    """Return pages of 100 series by `periods` periods, 60 % filled, some to a query."""
    values = _Values(periods)
    series = [
        _series(
            (page * 2 + path) * 50 + metric,
            f"metric-{page}-{metric}",
            f"path-{page}-{path}",
        )
        for page in range(queries * pages)
        for path in range(2)
        for metric in range(50)
    ]
    plan = _planned(_catalogue(series, values.periods))
    places = {item.series_id: place for place, item in enumerate(series)}
    answers, chains = {}, []
    for first in range(0, len(plan.batches), pages):
        batches = plan.batches[first : first + pages]
        chain = query_body(batches)
        chains.append(chain)
        for place, batch in enumerate(batches):
            members = [item for item in series if item.series_id in batch.matched]
            rows = [(item, values.text(places[item.series_id])) for item in members]
            answers[key(query_body([batch]))] = _page(values.periods, rows, None)
            cursor = f"after {place}" if place + 1 < len(batches) else None
            body = {**chain, "cursor": f"after {place - 1}" if place else None}
            answers[key(body)] = _page(values.periods, rows, cursor)
    count = sum(map(values.count, range(len(series))))
    return Shape("full", plan, chains, answers, count, count, queries * pages)


def dense(pages: int = 24, periods: int = 120) -> Shape:
    """Return a table of 50 metrics by two paths a page, each cell a series: a query a
    page as planned.
    """
    values = _Values(periods)
    series = [
        _series(path * 50 + metric, f"metric-{metric}", f"path-{path}")
        for path in range(2 * pages)
        for metric in range(50)
    ]
    plan = _planned(_catalogue(series, values.periods))
    by_id = {
        item.series_id: (item, values.text(place)) for place, item in enumerate(series)
    }
    chains = [query_body([batch]) for batch in plan.batches]
    answers = {
        key(chain): _page(
            values.periods, [by_id[item] for item in sorted(batch.matched)], None
        )
        for chain, batch in zip(chains, plan.batches, strict=True)
    }
    count = sum(map(values.count, range(len(series))))
    return Shape("dense", plan, chains, answers, count, count, len(answers))


def one_chain(pages: int = 40, periods: int = 120) -> Shape:
    """Return one query of many pages: a single metric, path and group, which can only
    follow its cursor.
    """
    values = _Values(periods)
    series = [_series(number, "metric", "path") for number in range(100 * pages)]
    plan = _planned(_catalogue(series, values.periods))
    chain = query_body(plan.batches)
    answers = {}
    for page in range(pages):
        rows = [
            (item, values.text(page * 100 + place))
            for place, item in enumerate(series[page * 100 :][:100])
        ]
        cursor = f"after {page}" if page + 1 < pages else None
        answers[key({**chain, "cursor": f"after {page - 1}" if page else None})] = (
            _page(values.periods, rows, cursor)
        )
    count = sum(map(values.count, range(len(series))))
    return Shape("one chain", plan, [chain], answers, count, count, pages)


def real() -> Shape:
    """Return the pages that a company's whole dataset comes to, as planned."""
    publication = json.loads(gzip.decompress(REAL.read_bytes()))["publications"][-1]
    fields = ("year", "end_month", "duration_months")
    periods = [dict(zip(fields, item, strict=True)) for item in publication["periods"]]
    series = [
        CatalogueSeries(
            **{**item, "scopes": tuple(ScopeRef(**ref) for ref in item["scopes"])}
        )
        for group in publication["groups"]
        for item in group["series"]
    ]
    plan = _planned(_catalogue(series, periods))
    answers, count, sent_count = {}, 0, 0
    for batch in plan.batches:
        members = [item for item in series if item.series_id in batch.matched]
        rows = {
            item.series_id: publication["values"].get(item.series_id, [])
            for item in members
        }
        used = sorted(
            {row[0] for company_rows in rows.values() for row in company_rows}
        )
        texts = []
        for item in members:
            values_by_period = {
                row[0]: _real_value(publication, item, row[1])
                for row in rows[item.series_id]
            }
            texts.append(
                (
                    item,
                    json.dumps(
                        [values_by_period.get(position) for position in used],
                        separators=(",", ":"),
                    ),
                )
            )
        count += sum(len(rows[series_id]) for series_id in batch.home)
        sent_count += sum(map(len, rows.values()))
        answers[key(query_body([batch]))] = _page(
            [periods[position] for position in used], texts, None
        )
    chains = [query_body([batch]) for batch in plan.batches]
    return Shape("real", plan, chains, answers, count, sent_count, len(chains))


def _real_value(publication: Body, series: CatalogueSeries, value: list[Any]) -> Body:
    number, fill_type, report_place, sources = value
    number = number or 0.0  # as a service sends it that writes doubles
    year, end_month, duration = publication["report_periods"][report_place]
    return {
        "number": number,
        "text": f"{number:,}",
        "number_format": series.number_format,
        "fill_type": publication["fill_types"][fill_type],
        "value_version": "original",
        "report_period": {
            "year": year,
            "end_month": end_month,
            "duration_months": duration,
        },
        "sources": [
            {
                "item_id": publication["items"][item],
                "row_index": row,
                "column_index": column,
            }
            for item, row, column in sources
        ],
    }
