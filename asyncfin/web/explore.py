"""The explorer: a page on which people choose a company's series and see their values
and costs.

A GET never sends a request to the service: it shows values only if they are cached.
What may spend a request is a POST, and is refused unless it comes from the explorer's
own page. Other host names that point at this machine are refused.
"""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import anyio.to_thread
from attrs import field, frozen

from asyncfin import Comparison, Panel, checks
from asyncfin.checks import check_entity_id
from asyncfin.client import Client, publications_of
from asyncfin.errors import ArgumentError, AsyncfinError, SelectionError, printable
from asyncfin.events import Event, RequestFinished
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.period import Period
from asyncfin.model.query import ValueVersion
from asyncfin.model.series import CatalogueSeries
from asyncfin.optional import library
from asyncfin.read.several import (
    SeveralQuestion,
    cached_comparison,
    catalogues_of,
    compare,
    plans_of,
    read_cached_catalogue,
)
from asyncfin.web.answer import company_names, content, groups
from asyncfin.web.backend import ClientGoneError, HttpError, http_error, unless_gone
from asyncfin.web.download import file_stem, view_csv
from asyncfin.web.history import History, Marks
from asyncfin.web.question import RULES, Question, fields_of, problem_of, row_text
from asyncfin.web.views import ORDERS, SCALES, UNITS, VERSIONS, VIEWS, row_of
from asyncfin.words import counted, entity_names, listed

library("starlette", "web")
library("jinja2", "web")

from jinja2 import Environment, PackageLoader  # noqa: E402
from starlette.applications import Starlette  # noqa: E402
from starlette.exceptions import HTTPException  # noqa: E402
from starlette.middleware import Middleware  # noqa: E402
from starlette.middleware.trustedhost import TrustedHostMiddleware  # noqa: E402
from starlette.requests import Request  # noqa: E402
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response  # noqa: E402
from starlette.routing import Mount, Route  # noqa: E402
from starlette.staticfiles import StaticFiles  # noqa: E402

from asyncfin.web.guard import is_visit, received_form  # noqa: E402

V = TypeVar("V")
R = TypeVar("R", bound=Response)

# How much of a large company a page shows; the rest is counted, and found by searching.
MAX_SERIES_SHOWN = 400

_SECONDS = 300.0
# The age of a known catalogue does not matter if the question is read with its entity
# id, nor that of values which the page already shows.
_ANY_AGE = 1e9
# What is made of many values must neither stop the event loop nor take the threads of
# all other work.
_THREADS = 4
_LOCAL = ("127.0.0.1", "localhost")
# Only our own files: if a text of the service were taken for markup, it could load and
# run nothing.
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    # Answers belong to the account behind the page, so no shared cache may keep them.
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
# What a visitor can do about an error, by its status.
_ADVICE = {
    400: "Change the question and ask again.",
    404: "Check the company's id, and whether the account may read it.",
    500: "Tell the operator of this page.",
    502: "Tell the operator of this page: the service refused the account, or did not "
    "keep its promises.",
    503: "Come back later.",
    504: "Ask again, or for less.",
}


def explorer(
    client: Client | Callable[[], Client],
    entities: Iterable[str] | Mapping[str, str],
    *,
    hosts: Iterable[str] = _LOCAL,
    example: str = "",
    history: str | os.PathLike[str] | None = None,
) -> Starlette:
    """Return the explorer as an ASGI app, to be served by itself or mounted in another:

        app.mount("/explore", explorer(get_client, entity_ids))

    The page shows the companies, the series of one with a search box, rules for
    periods, what a question costs before and after, the values of up to 20 companies as
    a table and as charts, and the Python for the same. The URL contains the whole
    question. Opening it shows the values if they are cached, and younger than the
    client's `max_age`; so give the client a cache.

    Args:
        client: a client, or a function of no arguments that returns the running one: a
            mounted app's own lifespan does not run, so the host makes the client and
            closes it.
        entities: the ids of the companies to offer, or a mapping of ids to names. All
            other ids are 404. Once a company has been read, the page calls it by the
            name that the service gives.
        hosts: the host names that the page may be reached under. Any other Host header
            is refused with 400, so that no foreign page can reach it by another name.
        example: the path and query of a question to open first, in place of the list of
            companies.
        history: the folder or URL of an extraction with a change feed, as for
            `read_changes`: the table then marks what changed with the last publication
            of each company (extra ``arrow``). The feed is read at each visit, in a
            thread. Where it can't be read, the page says so.

    Raises:
        ArgumentError: an argument is not as described; a single id or host name has to
            be in a list.
        SelectionError: one of `entities` is not an entity id.
        ImportError: the extra `web` is not installed, or for `history` the extra
            ``arrow``.
    """
    if not isinstance(client, Client) and not callable(client):
        raise ArgumentError(
            "client must be a Client, or a function that returns it, not "
            f"{checks.short_repr(client)}"
        )
    checks.several("entities", entities, "entity ids")
    names = (
        dict(entities) if isinstance(entities, Mapping) else dict.fromkeys(entities, "")
    )
    for each in names:
        check_entity_id(each)
    checks.several("hosts", hosts, "host names")
    hosts = tuple(hosts)
    for host in hosts:
        # An IPv6 address has colons too, but several.
        if not isinstance(host, str) or not host or "/" in host or host.count(":") == 1:
            raise ArgumentError(
                "hosts must be host names such as figures.example, without scheme and "
                "port,"
                f" not {checks.short_repr(host)}"
            )
    # Called at each request: a host makes its client when it starts, which is after
    # this.
    pages = _Pages(
        client if callable(client) else lambda: client,
        names,
        example,
        None if history is None else History(history),
    )
    return Starlette(
        routes=[
            Route("/", pages.start),
            Route("/company/{entity_id}", pages.company),
            Route("/company/{entity_id}/series", pages.series, methods=["POST"]),
            Route("/company/{entity_id}/cost", pages.cost, methods=["POST"]),
            Route("/company/{entity_id}/answer", pages.answer, methods=["POST"]),
            Route("/company/{entity_id}/view", pages.view, methods=["POST"]),
            Route("/company/{entity_id}/cell", pages.cell, methods=["POST"]),
            Route("/company/{entity_id}/csv", pages.csv, methods=["POST"]),
            Route("/company/{entity_id}/progress", pages.progress),
            Mount("/static", StaticFiles(directory=Path(__file__).with_name("static"))),
        ],
        # In lower case, as browsers send them: older versions of Starlette compare them
        # as they are written.
        middleware=[
            Middleware(
                TrustedHostMiddleware,
                allowed_hosts=[host.lower() for host in hosts],
                www_redirect=False,
            )
        ],
        exception_handlers={
            AsyncfinError: pages.refused,
            TimeoutError: pages.refused,
            HTTPException: pages.refused,
            ClientGoneError: _gone,
        },
    )


class _Pages:
    """The endpoints. `names` maps the ids of the companies offered to their names, as
    far as known.
    """

    def __init__(
        self,
        client: Callable[[], Client],
        names: dict[str, str],
        example: str,
        history: History | None,
    ) -> None:
        self._client = client
        self._names = names
        self._example = example
        self._history = history
        self._progress: dict[str, _Progress] = {}
        self._limiter = anyio.CapacityLimiter(_THREADS)
        self._templates = Environment(
            loader=PackageLoader("asyncfin.web"),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters["printable"] = printable

    async def start(self, request: Request) -> Response:
        if self._example and "companies" not in request.query_params:
            root = request.scope.get("root_path", "")
            return RedirectResponse(f"{root}{self._example}", headers=_HEADERS)
        return await self._page(
            request, "start.html", lambda: {"example": self._example}
        )

    async def company(self, request: Request) -> Response:
        """Return the page with the question of its URL, and with its values if all of
        them are cached.

        Only a visit reads the cache: what a foreign page can trigger gets the form
        alone.
        """
        question = self._question(request, fields_of(request.url.query))
        cached: list[Catalogue | None] = [None] * len(question.companies)
        kept: _Received | None = None
        marks, cost, problem = Marks(), dict[str, Any](), ""
        if is_visit(request.headers):
            publications = publications_of(self._client())
            cached = [
                await read_cached_catalogue(publications, each)
                for each in question.companies
            ]
        catalogues = [each for each in cached if each is not None]
        if question.series and len(catalogues) == len(cached):
            try:
                question.check_view()
                kept = await self._kept(question, catalogues, max_age=None)
                if kept is None:
                    cost = await self._cost(question, catalogues)
                else:
                    marks = await self._marks(question, kept)
            except SelectionError as error:
                problem = problem_of(error)

        def build() -> dict[str, Any]:
            context = {**cost}
            if cached[0] is not None:
                context |= self._series(question, cached[0])
            if problem:
                context |= {"text": problem, "advice": _ADVICE[400]}
            elif kept is not None:
                context |= self._shown(request, question, kept, marks)
            return context

        return await self._page(
            request,
            "page.html",
            build,
            question=question,
            missing=[
                each
                for each, known in zip(question.companies, cached, strict=True)
                if known is None
            ],
            # A link of this page itself: its visitor wants to see the series.
            load=request.headers.get("sec-fetch-site") == "same-origin",
        )

    async def series(self, request: Request) -> Response:
        """Return the series that match the search, and the selected ones. Reads the
        catalogue.
        """
        question, _ = await self._asked(request)
        catalogue = await unless_gone(
            request, self._client().catalogue(question.companies[0]), _SECONDS
        )
        self._names[catalogue.entity_id] = catalogue.name
        return await self._page(
            request, "series.html", lambda: self._series(question, catalogue)
        )

    async def cost(self, request: Request) -> Response:
        """Return how many requests the question would spend. Reads catalogues that are
        not known.
        """
        question, _ = await self._asked(request)
        if not question.series:
            return await self._page(request, "cost.html", dict)
        reading = catalogues_of(
            publications_of(self._client()), question.companies, max_age=_ANY_AGE
        )
        each = await unless_gone(request, reading, _SECONDS)
        if each.failed:
            raise each.ended or next(iter(each.failed.values()))
        cost = await self._cost(question, [*each.found.values()])
        return await self._page(request, "cost.html", dict, **cost)

    async def answer(self, request: Request) -> Response:
        """Return the table, the charts, what was spent, and the Python for the same."""
        question, _ = await self._asked(request)
        question.check_view()
        # Visitors who request values of one company at the same time all see the
        # progress of the last one.
        progress = self._progress[question.companies[0]] = _Progress(question.companies)
        with self._client().observed(progress):
            received = await unless_gone(request, self._read(question), _SECONDS)
        return await self._answered(request, question, received)

    async def view(self, request: Request) -> Response:
        """Return another view of the values that the page shows. No request.

        Raises:
            HTTPException: 409: the client has not cached them, or the service has
                refused a company since.
        """
        question, form = await self._asked(request)
        question.check_view()
        received = await self._seen(request, question, {**form, "spend": []})
        return await self._answered(request, question, received)

    async def cell(self, request: Request) -> Response:
        """Return what a value is and where it comes from, or why there is none. No
        request but `spend`.
        """
        question, form = await self._asked(request)
        given = [
            form.get(f"cell_{name}", [""])[-1]
            for name in ("company", "version", "series", "period")
        ]
        company, version, series_id, label = given
        period = Period.parse(label)
        received = await self._seen(request, question, form)
        read = next(
            (
                each
                for each in received.panels
                if (each.dataset.entity_id, each.value_version) == (company, version)
                and series_id in each.series_ids
            ),
            None,
        )
        if read is None:
            raise HTTPException(409, "the page does not show that value any more")

        def build() -> dict[str, Any]:
            panel = question.shown_of(read, received.catalogues)
            names = entity_names(each.catalogue for each in received.panels)
            (shown,) = panel.where(lambda series: series.series_id == series_id).rows()
            row = row_of(panel, shown, names[company])
            value = row.values.get(period)
            # None: there is a value, but outside of the company's window.
            why = (
                panel.why(series_id, period)
                or f"not requested: the question does not include {period}"
            )
            return {
                "row": row,
                "period": period,
                "months": _months(period),
                "value": value,
                "number": "" if value is None else str(value.number).removesuffix(".0"),
                "reported": "" if value is None else _reported(value.report_period),
                "why": why,
            }

        return _said(await self._page(request, "cell.html", build), received)

    async def csv(self, request: Request) -> Response:
        """Return all values of the question in the view of the page, as CSV. No request
        without `spend`.
        """
        question, form = await self._asked(request)
        question.check_view()
        received = await self._seen(request, question, form)

        def build() -> tuple[str, str]:
            every = groups(question, received.panels, received.catalogues)
            return view_csv(every), file_stem(company_names(every), question.view)

        body, name = await self._in_thread(build)
        disposition = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
        return _said(
            Response(body, media_type="text/csv", headers={**_HEADERS, **disposition}),
            received,
        )

    async def progress(self, request: Request) -> Response:
        """Return how many queries were answered since values were last requested."""
        progress = self._progress.get(self._entity_id(request))
        return JSONResponse(
            {"answered": progress.answered if progress else 0}, headers=_HEADERS
        )

    def _series(self, question: Question, catalogue: Catalogue) -> dict[str, Any]:
        """Return what the list of series shows."""
        found = catalogue.search(question.search)
        chosen = question.chosen(catalogue)
        taken = {each.series_id for each in chosen.values()}
        others = [each for each in found if each.series_id not in taken]
        listed = others[:MAX_SERIES_SHOWN]
        return {
            "question": question,
            "catalogue": catalogue,
            "chosen": chosen,
            "unknown": [
                each
                for each in question.series
                if each not in chosen and each not in catalogue
            ],
            # In the order of the search, or by group and path.
            "listed": [(row_text(catalogue, each), each) for each in listed]
            if question.search
            else [],
            "tree": [] if question.search else _tree(catalogue, listed),
            "found": len(found),
            "close": found.close,
            "hidden": len(others) - len(listed),
        }

    async def _kept(
        self,
        question: Question,
        catalogues: Sequence[Catalogue],
        *,
        max_age: float | None,
    ) -> "_Received | None":
        """Return what the page shows if all of it is cached, and None otherwise. No
        request.

        Raises:
            SelectionError: as for `Client.query`.
        """
        publications, comparisons = publications_of(self._client()), list[Comparison]()
        current = {each.entity_id: each.dataset_id for each in catalogues}
        for version in question.versions:
            comparison = await cached_comparison(
                publications, _several(question, catalogues, version, max_age)
            )
            if comparison is None or any(
                each.dataset.dataset_id != current[each.dataset.entity_id]
                for each in comparison
            ):
                return None
            comparisons.append(comparison)
        return _Received(question, catalogues, comparisons)

    async def _seen(
        self, request: Request, question: Question, form: Mapping[str, Sequence[str]]
    ) -> "_Received":
        """Return the answers of the publications that the page shows.

        Raises:
            HTTPException: 409: the client has not cached them, and the form does not
                allow to spend.
        """
        publications, catalogues = publications_of(self._client()), list[Catalogue]()
        shown = dict(
            each.split(" ", 1) for each in form.get("publication", ()) if " " in each
        )
        for entity_id in question.companies:
            catalogue = await read_cached_catalogue(
                publications, entity_id, max_age=_ANY_AGE
            )
            if catalogue is not None and catalogue.dataset_id == shown.get(entity_id):
                catalogues.append(catalogue)
        if catalogues and len(catalogues) == len(shown):
            kept = await self._kept(question, catalogues, max_age=_ANY_AGE)
            if kept is not None:
                return kept
        if "1" not in form.get("spend", ()):
            raise HTTPException(409, "these values are not cached any more")
        return await unless_gone(request, self._read(question), _SECONDS)

    async def _cost(
        self, question: Question, catalogues: Sequence[Catalogue]
    ) -> dict[str, Any]:
        """Return how many series the question has, and how many requests they take. No
        request.
        """
        select, publications = (
            question.select(catalogues[0]),
            publications_of(self._client()),
        )
        plans = await plans_of(
            publications, catalogues, select, question.periods, question.versions
        )
        series = sum(len(plan.series) for plan in plans)
        # Each company has what it has; of a single one that has nothing the error says
        # what is wrong.
        if not series and len(catalogues) == 1:
            catalogues[0].select(select)
        return {"series": series, "requests": sum(plan.requests for plan in plans)}

    async def _read(self, question: Question) -> "_Received":
        """Request what the page shows."""
        publications = publications_of(self._client())
        # Periods of several companies are resolved over their current catalogues.
        max_age = None if len(question.companies) > 1 else _ANY_AGE
        each = await catalogues_of(publications, question.companies, max_age=max_age)
        catalogues = list(each.found.values())
        if not catalogues:
            raise each.ended or next(iter(each.failed.values()))
        cost = await self._cost(question, catalogues)
        comparisons = [
            await compare(publications, _several(question, catalogues, version))
            for version in question.versions
        ]
        failed = each.failed | {
            name: error for one in comparisons for name, error in one.failed.items()
        }
        if not any(map(len, comparisons)):
            raise next(iter(failed.values()))
        return _Received(question, catalogues, comparisons, failed, cost["requests"])

    async def _answered(
        self, request: Request, question: Question, received: "_Received"
    ) -> HTMLResponse:
        marks = await self._marks(question, received)
        return await self._page(
            request,
            "answer.html",
            lambda: self._shown(request, question, received, marks),
        )

    async def _marks(self, question: Question, received: "_Received") -> Marks:
        """Return what the last publications changed of the values shown."""
        # A change is one of values: it says nothing of what is computed from them.
        if self._history is None or question.view != "values":
            return Marks()
        panels = received.panels
        return await self._history.marks(panels, question.triples(panels[0].catalogue))

    def _shown(
        self, request: Request, question: Question, received: "_Received", marks: Marks
    ) -> dict[str, Any]:
        """Return what the page shows of answers."""
        panels = received.panels
        for panel in panels:
            self._names[panel.dataset.entity_id] = panel.dataset.name
        names = entity_names(received.catalogues)
        path = f"{request.scope.get('root_path', '')}/company/{quote(question.companies[0], safe='')}"
        shown = content(question, panels, received.catalogues, marks)
        return {
            "content": shown,
            "publications": {
                each.dataset.entity_id: each.dataset.dataset_id for each in panels
            }.items(),
            "divisors": question.divisors(received.catalogues),
            "cell_path": f"{path}/cell",
            "chart_file": lambda chart: (
                f"{file_stem(shown.companies, question.view, chart.title)}.png"
            ),
            "spent": received.spent,
            "planned": received.planned,
            "anchors": dict.fromkeys(
                (names[each.dataset.entity_id], each.anchor)
                for each in panels
                if each.anchor
            ),
            "notes": [*self._missing(received), *shown.notes],
            "python": question.python(panels[0].catalogue),
        }

    def _missing(self, received: "_Received") -> list[str]:
        """Return lines about the companies that do not have all of the question."""
        lines, words = [], received.question.words(received.catalogues)
        names = entity_names(received.catalogues)
        for entity_id in received.question.companies:
            name = names.get(entity_id) or self._names[entity_id] or entity_id
            if entity_id in received.failed:
                lines.append(f"{name}: {http_error(received.failed[entity_id]).text}.")
            elif not any(entity_id in one for one in received.comparisons):
                # Another view of values that were read before: why is not known any
                # more.
                lines.append(
                    f"{name} could not be read when these values were requested."
                )
            for one in received.comparisons:
                missing = one.missing.get(entity_id, {})
                lines += [
                    f"{name} does not have "
                    f"{listed([words.get(each, each) for each in ids])}."
                    for field, ids in missing.items()
                    if field != "periods"
                ]
        return list(dict.fromkeys(lines))

    async def refused(self, request: Request, error: Exception) -> Response:
        """Return an error as a sentence and advice, as a page or in place of the
        fragment.
        """
        answer = (
            HttpError(error.status_code, str(error.detail), dict(error.headers or {}))
            if isinstance(error, HTTPException)
            else http_error(error)
        )
        text = (
            problem_of(error)
            if isinstance(error, SelectionError) and answer.status == 400
            else answer.text
        )
        context = {"text": text, "advice": _ADVICE.get(answer.status, "")}
        template = (
            "error.html"
            if request.headers.get("hx-request") == "true"
            else "error_page.html"
        )
        response = await self._page(request, template, lambda: context)
        response.status_code = answer.status
        response.headers.update(answer.headers)
        return response

    def _entity_id(self, request: Request) -> str:
        entity_id: str = request.path_params["entity_id"]
        self._check_offered(entity_id)
        return entity_id

    def _check_offered(self, entity_id: str) -> None:
        if entity_id not in self._names:
            raise HTTPException(404, "this page does not offer that company")

    def _question(
        self, request: Request, form: Mapping[str, Sequence[str]]
    ) -> Question:
        question = Question.of(self._entity_id(request), form)
        for each in question.companies:
            self._check_offered(each)
        return question

    async def _asked(
        self, request: Request
    ) -> tuple[Question, Mapping[str, Sequence[str]]]:
        """Return the question of a form that the explorer's own page has sent, and the
        form.
        """
        self._entity_id(request)
        form = await received_form(request)
        return self._question(request, form), form

    async def _in_thread(self, work: Callable[[], V]) -> V:
        return await anyio.to_thread.run_sync(work, limiter=self._limiter)

    async def _page(
        self,
        request: Request,
        template: str,
        build: Callable[[], Mapping[str, Any]],
        **context: object,
    ) -> HTMLResponse:
        """Return a page or a fragment; `build` returns what is made of many values, and
        runs in a thread.
        """

        def render() -> str:
            return self._templates.get_template(template).render(
                root=request.scope.get("root_path", ""),
                names=self._names,
                rules=RULES,
                versions=VERSIONS,
                views=VIEWS,
                scales=SCALES,
                units=UNITS,
                orders=ORDERS,
                **{**context, **build()},
            )

        return HTMLResponse(await self._in_thread(render), headers=_HEADERS)


@frozen
class _Received:
    """What was read for a question, in each of its versions.

    Attributes:
        catalogues: those over which its periods were resolved.
        failed: the errors of companies that could not be read.
        planned: how many requests were planned.

    Raises:
        SelectionError: no company has one of the series.
    """

    question: Question
    catalogues: Sequence[Catalogue]
    comparisons: Sequence[Comparison]
    failed: Mapping[str, AsyncfinError] = field(factory=dict)
    planned: int = 0

    def __attrs_post_init__(self) -> None:
        if not any(map(len, self.panels)):
            raise SelectionError("none of these companies has one of these series")

    @property
    def panels(self) -> list[Panel]:
        """The panels in the order of the question, the versions of a company one after
        the other.
        """
        ids = self.question.companies
        return [
            one[entity_id]
            for entity_id in ids
            for one in self.comparisons
            if entity_id in one
        ]

    @property
    def spent(self) -> int:
        return sum(panel.requests for panel in self.panels)


def _several(
    question: Question,
    catalogues: Sequence[Catalogue],
    version: ValueVersion,
    max_age: float | None = None,
) -> SeveralQuestion:
    """Return the question to the companies whose catalogues are known, in the same
    periods for all.
    """
    select, periods = question.select(catalogues[0]), question.to_read(catalogues)
    return SeveralQuestion(
        [each.entity_id for each in catalogues], select, periods, version, max_age
    )


class _Progress:
    """An observer that counts the queries of some companies that were answered."""

    def __init__(self, entity_ids: Collection[str]) -> None:
        self._entity_ids = entity_ids
        self.answered = 0

    def __call__(self, event: Event) -> None:
        if (
            isinstance(event, RequestFinished)
            and event.status is not None
            and event.operation == "query"
            and event.entity_id in self._entity_ids
        ):
            self.answered += 1


async def _gone(request: Request, error: Exception) -> Response:
    # nginx's number for a client that has gone; only a log shows it.
    return Response(status_code=499)


def _tree(
    catalogue: Catalogue, series: Iterable[CatalogueSeries]
) -> list[tuple[str, list[tuple[str, list[tuple[str, CatalogueSeries]]]]]]:
    """Return series by the names of their reporting group and scope path, each with the
    text of its row.
    """
    tree: dict[str, dict[str, list[tuple[str, CatalogueSeries]]]] = {}
    for each in series:
        paths = tree.setdefault(each.reporting_group_id, {})
        path = " / ".join(catalogue.scope_names(each.scopes))
        paths.setdefault(path, []).append((row_text(catalogue, each), each))
    # Groups may share a name.
    return [
        (catalogue.by_group[group].name, list(paths.items()))
        for group, paths in tree.items()
    ]


def _said(response: R, received: _Received) -> R:
    """Return a response that says how many requests it took."""
    response.headers["X-Requests-Spent"] = str(received.spent)
    return response


def _months(period: Period) -> str:
    return (
        f"{counted(period.duration_months, 'month')} to fiscal month "
        f"{period.end_month} of {period.year}"
    )


def _reported(period: Period | None) -> str:
    return (
        "not stated"
        if period is None
        else f"fiscal month {period.end_month} of {period.year}"
    )
