"""A service and an oracle that are made from the spec alone: neither imports the library or its sandbox.

Every text names the publication, the series, the version and the period of its value, so a value in the wrong
place is seen. The service publishes forwards, backwards and back again, refuses (403), fails and breaks off.
It records when which publication was current and when it refused, in wall time.
"""

from __future__ import annotations

import base64
import json
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from aiohttp import web

TOKEN = "oracle-token"
Key = tuple[int, int, int]
VERSIONS = ("original", "latest_restated")
METRICS = [f"Metric{n}" for n in range(70)]
PATHS: list[list[dict[str, str]]] = [
    [],
    *([{"scope_group_id": "segment", "scope_id": f"s{n}"}] for n in range(3)),
    [{"scope_group_id": "segment", "scope_id": "s0"}, {"scope_group_id": "region", "scope_id": "r0"}],
]
GROUPS = {"annual": "consolidated", "quarterly": "segment"}
PERIODS: list[Key] = sorted(
    (year, month, months)
    for year in (2020, 2021, 2022, 2023)
    for month, months in ((3, 3), (6, 3), (6, 6), (9, 3), (12, 3), (12, 12))
)


@dataclass
class Publication:
    """One publication: its series, and its numbers by version, series and period."""

    entity_id: str
    number: int
    series: list[dict[str, Any]]
    values: dict[str, dict[str, dict[Key, float]]]
    periods: list[Key]

    @property
    def dataset_id(self) -> str:
        return str(UUID(int=(int(self.entity_id[-6:], 16) << 64) + self.number + 1, version=4))

    @property
    def head(self) -> dict[str, Any]:
        stamp = f"2025-01-01T00:{self.number % 60:02}:00Z"
        return {
            "entity_id": self.entity_id,
            "name": f"Entity {self.entity_id[-4:]}",
            "dataset_id": self.dataset_id,
            "created_timestamp": stamp,
        }

    def text(self, series_id: str, version: str, period: Key) -> str:
        return f"{self.entity_id[-4:]}/{self.number}/{series_id}/{version}/{'-'.join(map(str, period))}"


def publish(entity_id: str, number: int) -> Publication:
    """Return the publication of this number, always the same one."""
    rng = random.Random(f"{entity_id}/{number}")
    every = [(m, p, g) for m in METRICS for p in range(len(PATHS)) for g in GROUPS]
    # The same cell has the same series id in every publication; which cells there are differs.
    cells = random.Random(entity_id).sample(every, 260)
    kept = [cell for cell in cells if rng.random() < 0.8]
    series, values = [], {version: {} for version in VERSIONS}  # type: dict[str, dict[str, dict[Key, float]]]
    periods = PERIODS[: len(PERIODS) - rng.choice([0, 6])]
    for metric, path, group in kept:
        series_id = f"S-{every.index((metric, path, group))}"
        series.append(
            {
                "series_id": series_id,
                "reporting_group_id": group,
                "metric_id": metric,
                "label": f"{metric} label",
                "description": f"{metric} in units",
                "basis": GROUPS[group],
                "scopes": PATHS[path],
                "number_format": "0",
                "period_meaning": "over_period",
            }
        )
        # A third has no values; some have values in one version only.
        kind = rng.choice(["none", "both", "both", "both", "original", "latest_restated"])
        months = {12} if group == "annual" else {3, 6}
        for at, version in enumerate(VERSIONS):
            if kind in ("both", version):
                values[version][series_id] = {
                    period: float(number * 1000 + at * 500 + PERIODS.index(period))
                    for period in periods
                    if period[2] in months and rng.random() < 0.7
                }
    return Publication(entity_id, number, series, values, periods)


def matches(each: dict[str, Any], select: dict[str, Any]) -> bool:
    """Return whether a series is selected; an absent key selects all."""
    return (
        each["metric_id"] in select.get("metric_ids", (each["metric_id"],))
        and each["reporting_group_id"] in select.get("reporting_group_ids", (each["reporting_group_id"],))
        and each["basis"] in select.get("basis", (each["basis"],))
    )


def is_known(publication: Publication, select: dict[str, Any]) -> bool:
    """Return whether the publication has every id of the selection, and a series for it."""
    for name, key in (
        ("metric_ids", "metric_id"),
        ("reporting_group_ids", "reporting_group_id"),
        ("basis", "basis"),
    ):
        if name in select and not set(select[name]) <= {each[key] for each in publication.series}:
            return False
    return any(matches(each, select) for each in publication.series)


def expected(
    publication: Publication, select: dict[str, Any], rule: tuple[Any, ...], version: str
) -> tuple[list[Key], dict[str, dict[Key, str]]]:
    """Return the periods of the result and the text at each period, by series (design, "Exactness")."""
    ids = [each["series_id"] for each in publication.series if matches(each, select)]
    found = {one: publication.values[version].get(one, {}) for one in ids}
    kind, *arguments = rule
    periods = publication.periods
    if kind == "annual":
        chosen = [each for each in periods if each[1:] == (12, 12)][-arguments[0] :]
    elif kind == "quarterly":
        chosen = [each for each in periods if each[2] == 3][-arguments[0] :]
    elif kind == "range":
        first, last = arguments
        chosen = [each for each in periods if first <= each[:2] <= last]
    elif kind == "trailing":
        ends = [year * 12 + month for row in found.values() for year, month, _ in row]
        anchor = max(ends, default=None)
        chosen = [
            (year, month, months)
            for year, month, months in periods
            if anchor is not None and anchor - arguments[0] < year * 12 + month <= anchor
        ]
    else:
        raise AssertionError(kind)
    if kind in ("range", "trailing"):
        chosen = [each for each in chosen if any(each in row for row in found.values())]
    texts = {
        one: {each: publication.text(one, version, each) for each in chosen if each in row}
        for one, row in found.items()
    }
    return chosen, texts


def select_periods(periods: list[Key], selection: dict[str, Any], rows: list[dict[Key, float]]) -> set[Key]:
    """Return the periods that a selection matches (spec 4.3). A trailing window ends at the last value."""
    ends = {period: period[0] * 12 + period[1] for period in periods}
    match selection["mode"]:
        case "exact":
            return {_key(period) for period in selection["exact"]}
        case "fiscal_range":
            first, last = (_end_month(selection[bound]) for bound in ("from", "to"))
        case "trailing":
            last = max((ends[period] for row in rows for period in row), default=0)
            first = last - selection["months"] + 1
    return {period for period, end in ends.items() if first <= end <= last}


@dataclass
class Entity:
    """What is current, and since when: (wall time, publication number), (wall time, allowed)."""

    entity_id: str
    current: list[tuple[float, int]] = field(default_factory=list)
    access: list[tuple[float, bool]] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)  # when a 403 was sent

    @property
    def publication(self) -> Publication:
        return publish_once(self.entity_id, self.current[-1][1])

    @property
    def allowed(self) -> bool:
        return self.access[-1][1]

    def intervals(self, number: int) -> list[tuple[float, float]]:
        """Return when a publication was current."""
        ends = [at for at, _ in self.current[1:]] + [float("inf")]
        return [(at, end) for (at, each), end in zip(self.current, ends, strict=True) if each == number]


_published: dict[tuple[str, int], Publication] = {}


def publish_once(entity_id: str, number: int) -> Publication:
    key = (entity_id, number)
    if key not in _published:
        _published[key] = publish(*key)
    return _published[key]


class Service:
    """The service of the spec, by hand. Use `app()` with an aiohttp runner."""

    def __init__(
        self, seed: int, entities: int = 3, *, lists_empty: bool = True, faults: float = 0.0
    ) -> None:
        self.rng = random.Random(seed)
        self.lists_empty, self.faults = lists_empty, faults
        ids = [f"O-{n + 1:032x}" for n in range(entities)]
        now = time.time()
        self.entities = {one: Entity(one, [(now, 0)], [(now, True)]) for one in ids}
        self.requests = 0
        self.answers_409: list[tuple[str, int]] = []

    def publish(self, entity_id: str, number: int) -> None:
        """Make a publication the current one: a later, an earlier, or one that was current before."""
        publish_once(entity_id, number)  # made before it is current
        self.entities[entity_id].current.append((time.time(), number))

    def allow(self, entity_id: str, allowed: bool) -> None:
        self.entities[entity_id].access.append((time.time(), allowed))

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/v1/entities/{entity_id}/dataset", self._dataset)
        app.router.add_get("/v1/entities/{entity_id}/dataset/catalogue", self._catalogue)
        app.router.add_post("/v1/entities/{entity_id}/dataset/query", self._query)
        return app

    def _admit(self, request: web.Request) -> Entity:
        self.requests += 1
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise _refusal(web.HTTPUnauthorized, "unauthorized")
        fault = self.rng.random()
        if fault < self.faults * 0.5:
            raise _refusal(web.HTTPServiceUnavailable, "unavailable")
        if fault < self.faults:
            assert request.transport is not None
            request.transport.abort()
            raise web.HTTPInternalServerError
        entity = self.entities[request.match_info["entity_id"]]
        if not entity.allowed:
            entity.refused.append(time.time())
            raise _refusal(web.HTTPForbidden, "forbidden")
        return entity

    def _pinned(self, entity: Entity, pin: str | None) -> Publication:
        publication = entity.publication
        if pin is not None and pin != publication.dataset_id:
            self.answers_409.append((entity.entity_id, publication.number))
            raise _refusal(web.HTTPConflict, "dataset_changed")
        return publication

    async def _dataset(self, request: web.Request) -> web.Response:
        return web.json_response(self._admit(request).publication.head)

    async def _catalogue(self, request: web.Request) -> web.Response:
        publication = self._pinned(self._admit(request), request.query.get("expected_dataset_id"))
        limit, at = int(request.query.get("limit", 25)), _place(request.query.get("cursor"))
        groups: dict[str, list[Any]] = {}
        for each in publication.series[at : at + limit]:
            groups.setdefault(each["reporting_group_id"], []).append(each)
        body = publication.head | {
            "periods": [_period(each) for each in publication.periods],
            "scope_groups": [
                {
                    "scope_group_id": name,
                    "name": name,
                    "description": name,
                    "scopes": [
                        {"scope_id": one, "name": one, "description": one, "role": name, "aliases": []}
                        for one in scopes
                    ],
                }
                for name, scopes in (("segment", ["s0", "s1", "s2"]), ("region", ["r0"]))
            ],
            "groups": [
                {
                    "reporting_group_id": name,
                    "name": name,
                    "description": name,
                    "basis": GROUPS[name],
                    "cadence": name,
                    "series": series,
                }
                for name, series in groups.items()
            ],
        }
        if at + limit < len(publication.series):
            body["next_cursor"] = _cursor(at + limit)
        return web.json_response(body)

    async def _query(self, request: web.Request) -> web.Response:
        entity = self._admit(request)
        body = await request.json()
        publication = self._pinned(entity, body.get("expected_dataset_id"))
        metrics, paths, groups = (
            body["metric_ids"],
            body["scope_combinations"],
            body.get("reporting_group_ids"),
        )
        known = {each["metric_id"] for each in publication.series}
        caps = len(metrics) <= 50 and len(paths) <= 50 and len(set(metrics)) == len(metrics)
        all_paths = [each["scopes"] for each in publication.series]
        if not caps or not set(metrics) <= known or not all(path in all_paths for path in paths):
            raise _refusal(web.HTTPBadRequest, "validation_failed")
        version = body.get("value_version", "original")
        selected = [
            each
            for each in publication.series
            if each["metric_id"] in metrics
            and each["scopes"] in paths
            and (groups is None or each["reporting_group_id"] in groups)
        ]
        values = publication.values[version]
        rows = [(each, values.get(each["series_id"], {})) for each in selected]
        wanted = select_periods(publication.periods, body["periods"], [row for _, row in rows])
        if not self.lists_empty:
            rows = [(each, row) for each, row in rows if wanted & row.keys()]
        limit, at = body.get("limit", 25), _place(body.get("cursor"))
        page = rows[at : at + limit]
        # Each page lists its own periods, in another order.
        periods = [
            each for each in publication.periods if each in wanted and any(each in row for _, row in page)
        ]
        random.Random(at).shuffle(periods)
        series = [
            {key: value for key, value in each.items() if key != "description"}
            | {
                "values": [
                    None
                    if period not in row
                    else {
                        "number": row[period],
                        "text": publication.text(each["series_id"], version, period),
                        "number_format": "0",
                        "fill_type": "reported",
                        "value_version": version,
                        "report_period": _period((*period[:2], 0)),
                        "sources": [],
                    }
                    for period in periods
                ]
            }
            for each, row in page
        ]
        answer = publication.head | {"periods": [_period(each) for each in periods], "series": series}
        if at + limit < len(rows):
            answer["next_cursor"] = _cursor(at + limit)
        return web.json_response(answer)


def _refusal(kind: type[web.HTTPException], code: str) -> web.HTTPException:
    error = {"error": {"code": code, "message": code, "request_id": "r"}}
    return kind(text=json.dumps(error), content_type="application/json")


def _period(key: Key) -> dict[str, int]:
    return dict(zip(("year", "end_month", "duration_months"), key, strict=True))


def _key(period: dict[str, int]) -> Key:
    return period["year"], period["end_month"], period["duration_months"]


def _end_month(period: dict[str, int]) -> int:
    return period["year"] * 12 + period["end_month"]


def _cursor(at: int) -> str:
    return base64.urlsafe_b64encode(str(at).encode()).decode()


def _place(cursor: str | None) -> int:
    return 0 if cursor is None else int(base64.urlsafe_b64decode(cursor))


@dataclass
class Answer:
    """One result, or one error, as a client got it. Times are wall times of this machine."""

    entity_id: str
    select: dict[str, Any]
    rule: tuple[Any, ...]
    version: str
    max_age: float
    began: float
    ended: float
    dataset_id: str | None = None  # None: an error
    periods: list[Key] = field(default_factory=list)
    texts: dict[str, dict[Key, str]] = field(default_factory=dict)
    error: str = ""
    process: int = 0  # of the client


class Judge:
    """Compares answers with the oracle, in the order in which they ended."""

    def __init__(self, service: Service, *, has_cache: bool = True) -> None:
        self.has_cache = has_cache  # else each client has records of its own
        self.service = service
        # For each entity: (when an answer ended, since when its publication was current at the earliest).
        self.confirmed: dict[str, list[tuple[float, float]]] = {}
        # When the questions began and ended that were answered after a request of their own.
        self.allowed: dict[str, list[tuple[float, float]]] = {}
        # When the 403s of each entity were raised in each process.
        self.denied: dict[tuple[str, int], list[float]] = {}
        self.right = self.errors = 0

    def problem(self, answer: Answer) -> str:
        """Return what is wrong with an answer; "" if nothing is."""
        entity = self.service.entities[answer.entity_id]
        since = answer.began - answer.max_age
        current = {number for _, number in entity.current}
        possible = {
            number: [(a, b) for a, b in entity.intervals(number) if b >= since and a <= answer.ended]
            for number in current
        }
        if answer.dataset_id is None:
            return self._problem_of_error(answer, entity, possible)
        # A 403 binds the clients of its process, which have one token, once one has raised it.
        denied = self.denied.get((answer.entity_id, answer.process), ())
        known = [at for at in denied if at < answer.began]
        if known:
            sent = max(at for at in entity.refused if at <= max(known))
            if self._refused_throughout(entity, sent, answer.ended):
                return "values after a 403"
        for number, spans in possible.items():
            publication = publish_once(answer.entity_id, number)
            if spans and publication.dataset_id == answer.dataset_id:
                wanted = expected(publication, answer.select, answer.rule, answer.version)
                if (answer.periods, answer.texts) != wanted:
                    return f"not what publication {number} has"
                newest = max(
                    (
                        start
                        for ended, start in self.confirmed.get(answer.entity_id, ())
                        if ended < answer.began
                    ),
                    default=0.0,
                )
                if all(end < newest for _, end in spans):
                    return f"publication {number} after a newer one was confirmed"
                self.confirmed.setdefault(answer.entity_id, []).append((answer.ended, spans[0][0]))
                if answer.max_age == 0:  # a request was sent after it began
                    self.allowed.setdefault(answer.entity_id, []).append((answer.began, answer.ended))
                self.right += 1
                return ""
        return f"a publication that was not current within {answer.max_age} s"

    def _refused_throughout(self, entity: Entity, begin: float, end: float) -> bool:
        spans = [at for at, allowed in entity.access if allowed and begin <= at <= end]
        return not spans and not [allowed for at, allowed in entity.access if at <= begin][-1]

    def _problem_of_error(self, answer: Answer, entity: Entity, possible: dict[int, Any]) -> str:
        self.errors += 1
        if answer.error == "PermissionDeniedError":
            self.denied.setdefault((answer.entity_id, answer.process), []).append(answer.ended)
            # Within max_age an earlier one counts too, unless a later request has lifted it.
            since = answer.began - answer.max_age
            refused = [at for at in entity.refused if since <= at <= answer.ended]
            lifted = [
                began for began, ended in self.allowed.get(answer.entity_id, ()) if ended < answer.began
            ]
            if not refused:
                return "a 403 that was not sent during the question, or within max_age"
            if self.has_cache and max(refused) <= max(lifted, default=0.0):
                return "a 403 that was lifted"
            return ""
        if answer.error == "SelectionError":
            unknown = [
                number
                for number, spans in possible.items()
                if spans and not is_known(publish_once(answer.entity_id, number), answer.select)
            ]
            return "" if unknown else "a SelectionError for ids that the publication has"
        if answer.error in ("DatasetChangedError", "ServerFailureError", "ConnectionFailedError"):
            return ""  # it changed, or failed, too often
        return f"an unexpected {answer.error}"


@asynccontextmanager
async def serving(service: Service) -> AsyncIterator[str]:
    """Serve over loopback, and give the base URL."""
    runner = web.AppRunner(service.app(), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def change(service: Service, rng: random.Random) -> None:
    """Publish forwards, backwards or back again, or refuse an entity, or stop refusing it."""
    entity = service.entities[rng.choice(list(service.entities))]
    if rng.random() < 0.3 or not entity.allowed:
        service.allow(entity.entity_id, not entity.allowed)
    else:
        number = entity.current[-1][1]
        service.publish(entity.entity_id, rng.choice([number + 1, number + 1, max(0, number - 1), 0]))
