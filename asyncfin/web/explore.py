"""The explorer: a page on which people choose a company's series and see their values
and costs.

A GET never sends a request to the service: it shows values only if they are cached.
What may spend a request is a POST, and is rejected unless it comes from the explorer's
own page. Other host names that point at this machine are rejected.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import anyio.to_thread

from asyncfin import Catalogue, Client, Period, checks
from asyncfin.analysis.last_periods import read_last_periods
from asyncfin.checks import check_entity_id
from asyncfin.errors import ArgumentError, AsyncfinError, SelectionError, printable
from asyncfin.optional import library
from asyncfin.web.answer import Answer
from asyncfin.web.backend import ClientGoneError, HttpError, http_error, unless_gone
from asyncfin.web.question import CHOICES, VERSIONS, Question, fields_of, row_text
from asyncfin.web.views import make_entry
from asyncfin.words import counted

library("starlette", "web")
library("jinja2", "web")

from jinja2 import Environment, PackageLoader  # noqa: E402
from starlette.applications import Starlette  # noqa: E402
from starlette.exceptions import HTTPException  # noqa: E402
from starlette.middleware.trustedhost import TrustedHostMiddleware  # noqa: E402
from starlette.requests import Request  # noqa: E402
from starlette.responses import HTMLResponse, Response  # noqa: E402
from starlette.routing import Mount, Route  # noqa: E402
from starlette.staticfiles import StaticFiles  # noqa: E402

from asyncfin.web.guard import Form, is_visit, receive_form  # noqa: E402

ResultT = TypeVar("ResultT")

# How much of a large company a page shows; the rest is counted, and found by searching.
MAX_SERIES_SHOWN = 400
# How many nameless companies the list looks up in the cache at a visit.
MAX_NAMES_READ = 200
_SECONDS = 300.0
# The age of values that the page already shows does not matter.
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
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors "
        "'none'"
    ),
    # Answers belong to the account behind the page, so no shared cache may store them.
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
# What a visitor can do about an error, by its status.
_ADVICE = {
    400: "Change the query and try again.",
    404: "Check the company's id, and whether the account may read it.",
    500: "Tell the operator of this page.",
    502: "Tell the operator of this page: the service rejected the account, or did not "
    "keep its promises.",
    503: "Come back later.",
    504: "Send it again, or ask for less.",
}


def explorer(
    client: Client | Callable[[], Client],
    entities: Iterable[str] | Mapping[str, str],
    *,
    hosts: Iterable[str] = _LOCAL,
) -> Starlette:
    """Make the explorer, an ASGI app to be served by itself or mounted in another:

        app.mount("/explore", explorer(get_client, entity_ids))

    The page shows the companies, the series of one with a search box, rules for
    periods, what a question costs before and after, the values of up to 20 companies as
    a table and as charts, and the Python for the same. The URL contains the whole
    question. Opening it shows the values if they are cached, and younger than the
    client's `max_age`.

    Args:
        client: a client with a cache, or a function of no arguments that returns the
            running one. A mounted app's own lifespan does not run, so the host makes
            the client and closes it. Without a cache, values have no other unit, no
            details and no download.
        entities: the ids of the companies to offer, or a mapping of ids to names. All
            other ids are 404. A company whose catalogue is cached has the name in it.
        hosts: the host names that the page may be reached under. Any other Host header
            is rejected with 400, so that no foreign page can reach it by another name.

    Raises:
        ArgumentError: an argument is not as described; a single id or host name has to
            be in a list.
        SelectionError: one of `entities` is not an entity id.
        ImportError: the extra `web` is not installed.
    """
    if not isinstance(client, Client) and not callable(client):
        raise ArgumentError(
            "client must be a Client, or a function that returns it, not "
            f"{checks.short_repr(client)}"
        )
    checks.several("entities", entities, "entity ids")
    if not isinstance(entities, Mapping):
        entities = dict.fromkeys(entities, "")
    names: dict[str, str] = {}
    for entity_id, name in entities.items():
        check_entity_id(entity_id)
        # A names file has the id where it has no name.
        names[entity_id] = "" if name == entity_id else name
    checks.several("hosts", hosts, "host names")
    hosts = tuple(hosts)
    for host in hosts:
        # An IPv6 address has two colons or more.
        if not isinstance(host, str) or not host or "/" in host or host.count(":") == 1:
            raise ArgumentError(
                "hosts must be host names such as figures.example, without scheme and "
                f"port, not {checks.short_repr(host)}"
            )
    pages = _Pages(client, names)
    company = "/company/{entity_id}"
    static = StaticFiles(directory=Path(__file__).with_name("static"))
    routes = [
        Route("/", pages.start),
        Route(company, pages.company),
        Mount("/static", static),
    ]
    posts = (pages.series, pages.cost, pages.answer, pages.view, pages.cell, pages.csv)
    for post in posts:
        path = f"{company}/{post.__name__}"
        routes.append(Route(path, post, methods=["POST"]))
    errors = (AsyncfinError, TimeoutError, HTTPException)
    handlers = dict.fromkeys(errors, pages.show_error)
    app = Starlette(
        routes=routes,
        exception_handlers={**handlers, ClientGoneError: _end_visit},
    )
    # In lower case, as browsers send them: older versions of Starlette compare them as
    # they are written.
    hosts = list(map(str.lower, hosts))
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)
    return app


class _Pages:
    """The endpoints.

    `names` maps the ids of the companies on offer to their names, as far as they are
    confirmed.
    """

    def __init__(
        self, client: Client | Callable[[], Client], names: dict[str, str]
    ) -> None:
        self._source = client
        self._names = names
        self._templates = Environment(
            loader=PackageLoader("asyncfin.web"),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters["printable"] = printable
        self._limiter = anyio.CapacityLimiter(_THREADS)

    @property
    def _client(self) -> Client:
        # Called at each request: a host makes its client when it starts, which is after
        # this app was made.
        if isinstance(self._source, Client):
            return self._source
        return self._source()

    # --- pages

    async def start(self, request: Request) -> Response:
        """Show the companies on offer. Only a visit reads names from the cache."""
        if is_visit(request.headers):
            nameless = []
            for entity_id, name in self._names.items():
                if not name:
                    nameless.append(entity_id)
            await self._read_cached_catalogues(nameless[:MAX_NAMES_READ], _ANY_AGE)
        return await self._render(request, "start.html")

    async def company(self, request: Request) -> Response:
        """Show the question of the URL, and its values if all of them are cached.

        Only a visit reads the cache: what a foreign page can trigger gets the form
        alone.
        """
        question = self._read_question(request, fields_of(request.url.query))
        catalogues: list[Catalogue] = []
        if is_visit(request.headers):
            catalogues = await self._read_cached_catalogues(question.companies, None)
        context: dict[str, Any] = {"question": question}
        if catalogues and catalogues[0].entity_id == question.companies[0]:
            context |= await self._list_series(question, catalogues[0])
        missing = set(question.companies)
        for catalogue in catalogues:
            missing.discard(catalogue.entity_id)
        answer = None
        if question.series and not missing:
            try:
                context |= await self._plan(question, catalogues)
                if not context["requests"]:
                    answer = await self._read(question, catalogues)
            except SelectionError as error:
                context |= {"text": error.problem, "advice": _ADVICE[400]}
        return await self._render(
            request,
            "page.html",
            answer,
            missing=missing,
            # A link of this page itself: its visitor wants to see the series.
            load=request.headers.get("sec-fetch-site") == "same-origin",
            **context,
        )

    # --- fragments: these may spend requests

    async def series(self, request: Request) -> Response:
        """Show the series that match the search, and the selected ones. Reads the
        catalogue.
        """
        question, _ = await self._receive(request)
        reading = self._client.catalogue(question.companies[0])
        catalogue = await unless_gone(request, reading, _SECONDS)
        self._learn_names([catalogue])
        context = await self._list_series(question, catalogue)
        return await self._render(request, "series.html", **context)

    async def cost(self, request: Request) -> Response:
        """Show how many requests the query would spend. Reads the catalogues."""
        question, _ = await self._receive(request)
        if not question.series:
            return await self._render(request, "cost.html")
        reading = self._read_catalogues(question.companies)
        catalogues = await unless_gone(request, reading, _SECONDS)
        cost = await self._plan(question, catalogues)
        return await self._render(request, "cost.html", None, **cost)

    async def answer(self, request: Request) -> Response:
        """Show the table, the charts, what was spent, and the Python for the same."""
        question, _ = await self._receive(request)
        reading = self._read(question, question.companies)
        answer = await unless_gone(request, reading, _SECONDS)
        return await self._render(request, "answer.html", answer)

    # --- fragments of the values that the page shows: no request

    async def view(self, request: Request) -> Response:
        """Show the values in another unit."""
        question, form = await self._receive(request)
        answer = await self._read_shown(question, form)
        return await self._render(request, "answer.html", answer)

    async def cell(self, request: Request) -> Response:
        """Show what a value is and where it comes from, or why there is none."""
        question, form = await self._receive(request)
        fields = {"cell_company": "", "cell_series": "", "cell_period": ""}
        for name in fields.keys() & form.keys():
            fields[name] = form[name][-1]
        company = fields["cell_company"]
        series_id = fields["cell_series"]
        period = Period.parse(fields["cell_period"])
        answer = await self._read_shown(question, form)
        panel = answer.comparison.panels.get(company)
        if panel is None or series_id not in panel.series_ids:
            raise HTTPException(409, "the page does not show that value any more")
        (row,) = panel.where(lambda series: series.series_id == series_id).rows()
        # A window can be cut so that a value is outside of it.
        why = panel.why(series_id, period)
        return await self._render(
            request,
            "cell.html",
            entry=make_entry(panel, row, panel.dataset.name),
            version=VERSIONS[panel.value_version],
            period=period,
            months=counted(period.duration_months, "month"),
            value=row.values.get(period),
            why=why or f"not requested: the query does not include {period}",
        )

    async def csv(self, request: Request) -> Response:
        """Send all values as CSV."""
        question, form = await self._receive(request)
        answer = await self._read_shown(question, form)
        body = await self._run_in_thread(answer.comparison.to_csv)
        headers = {
            **_HEADERS,
            "Content-Disposition": 'attachment; filename="values.csv"',
        }
        return Response(body, media_type="text/csv", headers=headers)

    # --- what they read

    async def _receive(self, request: Request) -> tuple[Question, Form]:
        """Receive the question of a form that the explorer's own page has sent."""
        self._check_offered(request.path_params["entity_id"])
        form = await receive_form(request)
        return self._read_question(request, form), form

    def _read_question(self, request: Request, form: Form) -> Question:
        entity_id = request.path_params["entity_id"]
        self._check_offered(entity_id)
        question = Question.of(entity_id, form)
        for company in question.companies:
            self._check_offered(company)
        return question

    def _check_offered(self, entity_id: str) -> None:
        if entity_id not in self._names:
            raise HTTPException(404, "this page does not offer that company")

    async def _read_catalogues(self, entity_ids: Iterable[str]) -> list[Catalogue]:
        """Read the catalogues of companies at once.

        Raises:
            AsyncfinError: that of the first company that cannot be read.
        """
        reads = []
        for entity_id in entity_ids:
            reads.append(self._client.catalogue(entity_id, max_age=_ANY_AGE))
        catalogues = []
        # All of them end first: what was read is cached.
        for result in await asyncio.gather(*reads, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
            catalogues.append(result)
        self._learn_names(catalogues)
        return catalogues

    async def _read_cached_catalogues(
        self, entity_ids: Iterable[str], max_age: float | None
    ) -> list[Catalogue]:
        client = self._client
        catalogues = []
        for entity_id in entity_ids:
            catalogue = await client.cached_catalogue(entity_id, max_age=max_age)
            if catalogue is not None:
                catalogues.append(catalogue)
        self._learn_names(catalogues)
        return catalogues

    def _learn_names(self, catalogues: Iterable[Catalogue]) -> None:
        """Show companies by the names of their catalogues from now on."""
        for catalogue in catalogues:
            self._names[catalogue.entity_id] = catalogue.name

    async def _plan(
        self, question: Question, catalogues: Sequence[Catalogue]
    ) -> dict[str, int]:
        """Count the series of the question, and the requests that they need.

        Raises:
            SelectionError: no company has one of the series.
        """
        select, periods = question.select, question.resolve(catalogues)
        if not any(map(question.find_series, catalogues)):
            catalogues[0].select(select)  # its error names close matches
        cost = {"series": 0, "requests": 0}
        for catalogue in catalogues:
            plan = await self._client.plan(
                catalogue,
                select,
                periods,
                value_version=question.version,
                allow_missing=True,
            )
            cost["series"] += len(plan.series)
            cost["requests"] += plan.requests
        return cost

    async def _read(
        self, question: Question, sources: Iterable[str | Catalogue]
    ) -> Answer:
        """Read the values of companies, or of the publications of catalogues."""
        comparison = await self._client.compare(
            sources, question.select, question.periods, value_version=question.version
        )
        self._learn_names(panel.catalogue for panel in comparison)
        return Answer(question, comparison, self._names)

    async def _read_shown(self, question: Question, form: Form) -> Answer:
        """Read the values of the publications that the page shows, from the cache.

        Raises:
            HTTPException: 409: they are not cached.
        """
        publications = set(form.get("publication", ()))
        catalogues = []
        companies = question.companies
        for catalogue in await self._read_cached_catalogues(companies, _ANY_AGE):
            publication = f"{catalogue.entity_id} {catalogue.dataset_id}"
            if publication in publications:
                catalogues.append(catalogue)
        if catalogues and len(catalogues) == len(publications):
            cost = await self._plan(question, catalogues)
            if not cost["requests"]:
                return await self._read(question, catalogues)
        raise HTTPException(
            409,
            "the cache of this page does not have these values: show them again, or "
            "give its client a larger cache",
        )

    async def _list_series(
        self, question: Question, catalogue: Catalogue
    ) -> dict[str, Any]:
        """List the selected series, and those that match the search."""
        last_periods = {}
        if question.search:
            last_periods = await read_last_periods(self._client, catalogue)

        search = partial(catalogue.search, question.search, last_periods=last_periods)
        result = await self._run_in_thread(search)
        series_by_text = question.find_series(catalogue)
        chosen_series = {}
        for series in series_by_text.values():
            chosen_series[row_text(catalogue, series)] = series
        ids = set(map(attrgetter("series_id"), chosen_series.values()))
        # Without a search by group and path.
        tree: dict[str, dict[str, list[Any]]] = {}
        count = 0
        for match in result.matches:
            series = match.series
            if series.series_id in ids:
                continue
            count += 1
            if count > MAX_SERIES_SHOWN:
                continue
            group = path = ""
            if not question.search:
                group = series.reporting_group_id
                path = " / ".join(catalogue.scope_names(series.scopes))
            rows = tree.setdefault(group, {}).setdefault(path, [])
            rows.append((row_text(catalogue, series), match))
        return {
            "question": question,
            "catalogue": catalogue,
            "selected": chosen_series,
            "unknown": [text for text in question.series if text not in series_by_text],
            "tree": tree,
            "found": len(result),
            "close": result.close,
            "hidden": max(0, count - MAX_SERIES_SHOWN),
        }

    # --- responses

    async def show_error(self, request: Request, error: Exception) -> Response:
        """Show an error as a sentence and advice, as a page or in place of the
        fragment.
        """
        if isinstance(error, HTTPException):
            headers = dict(error.headers or {})
            answer = HttpError(error.status_code, str(error.detail), headers)
        else:
            answer = http_error(error)
        template = "error_page.html"
        if request.headers.get("hx-request") == "true":
            template = "error.html"
        text, advice = answer.text, _ADVICE.get(answer.status, "")
        if answer.status == 404 and "entity_id" not in request.path_params:
            text, advice = "There is no such page", ""
        response = await self._render(request, template, text=text, advice=advice)
        response.status_code = answer.status
        response.headers.update(answer.headers)
        return response

    async def _run_in_thread(self, work: Callable[[], ResultT]) -> ResultT:
        return await anyio.to_thread.run_sync(work, limiter=self._limiter)

    async def _render(
        self,
        request: Request,
        template: str,
        answer: Answer | None = None,
        **context: object,
    ) -> HTMLResponse:
        """Render a page or a fragment in a thread."""
        root = request.scope.get("root_path", "")

        def render() -> str:
            values = dict(context)
            if answer is not None:
                path = quote(answer.question.companies[0], safe="")
                values |= answer.make_page()
                values["cell_path"] = f"{root}/company/{path}/cell"
            return self._templates.get_template(template).render(
                root=root,
                names=self._names,
                choices=CHOICES,
                **values,
            )

        return HTMLResponse(await self._run_in_thread(render), headers=_HEADERS)


async def _end_visit(request: Request, error: Exception) -> Response:
    # nginx's number for a client that has gone; only a log shows it.
    return Response(status_code=499)
