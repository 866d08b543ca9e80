"""The explorer: a page on which people choose a company's series and see their values and costs.

A GET never sends a request to the service: it shows values only if they are cached. What may spend a request
is a POST, and is refused unless it comes from the explorer's own page. Other host names that point at this
machine are refused.
"""

import asyncio
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from asyncfin import checks
from asyncfin.client import Client, reads_of
from asyncfin.errors import ArgumentError, AsyncfinError, SelectionError, printable
from asyncfin.events import Event, RequestAnswered
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.judge import judge, without_periods
from asyncfin.model.query import ValueVersion
from asyncfin.model.series import CatalogueSeries
from asyncfin.model.words import listed
from asyncfin.optional import library
from asyncfin.read.several import SeveralQuestion, cached_comparison, catalogues_of, compare, plans_of
from asyncfin.table.comparison import Comparison
from asyncfin.web.answer import shown
from asyncfin.web.backend import ClientGoneError, HttpError, http_error, unless_gone
from asyncfin.web.history import History, Marks
from asyncfin.web.question import RULES, SCALES, VERSIONS, VIEWS, Question, problem_of, row_text
from asyncfin.wire.protocol import check_entity_id

library("starlette", "web")
library("jinja2", "web")

from jinja2 import Environment, PackageLoader  # noqa: E402
from starlette.applications import Starlette  # noqa: E402
from starlette.exceptions import HTTPException  # noqa: E402
from starlette.middleware import Middleware  # noqa: E402
from starlette.middleware.trustedhost import TrustedHostMiddleware  # noqa: E402
from starlette.requests import ClientDisconnect, Request  # noqa: E402
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response  # noqa: E402
from starlette.routing import Mount, Route  # noqa: E402
from starlette.staticfiles import StaticFiles  # noqa: E402

# How much of a large company a page shows; the rest is counted, and found by searching.
MAX_SERIES_SHOWN = 400

_SECONDS = 300.0
# The age of a known catalogue does not matter if the question is read with its entity id.
_ANY_AGE = 1e9
_FORM_SECONDS = 10
_MAX_FORM_BYTES = 1_000_000
_LOCAL = ("127.0.0.1", "localhost")
# Only our own files: if a text of the service were taken for markup, it could load and run nothing.
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
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
    502: "Tell the operator of this page: the service refused the account, or did not keep its promises.",
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

    The page shows the companies, the series of one with a search box, rules for periods, what a question
    costs before and after, the values of up to 20 companies as a table and as charts, and the Python for the
    same. The URL contains the whole question. Opening it shows the values if they are cached, and younger
    than the client's `max_age`; so give the client a cache.

    Args:
        client: a client, or a function of no arguments that returns the running one: a mounted app's own
            lifespan does not run, so the host makes the client and closes it.
        entities: the ids of the companies to offer, or a mapping of ids to names. All other ids are 404.
            A name that is not given is shown once the company has been opened.
        hosts: the host names that the page may be reached under. Any other Host header is refused with 400,
            so that no foreign page can reach it by another name.
        example: the path and query of a question to open first, in place of the list of companies.
        history: the folder or URL of an extraction with a change feed, as for `read_changes`: the table then
            marks what changed with the last publication of each company (extra ``arrow``). The feed is read
            at each visit, in a thread. Where it can't be read, the page says so.

    Raises:
        ArgumentError: an argument is not as described; a single id or host name has to be in a list.
        SelectionError: one of `entities` is not an entity id.
        ImportError: the extra `web` is not installed, or for `history` the extra ``arrow``.
    """
    if not isinstance(client, Client) and not callable(client):
        raise ArgumentError(
            f"client must be a Client, or a function that returns it, not {checks.short_repr(client)}"
        )
    checks.several("entities", entities, "entity ids")
    names = dict(entities) if isinstance(entities, Mapping) else dict.fromkeys(entities, "")
    for each in names:
        check_entity_id(each)
    checks.several("hosts", hosts, "host names")
    hosts = tuple(hosts)
    for host in hosts:
        # An IPv6 address has colons too, but several.
        if not isinstance(host, str) or not host or "/" in host or host.count(":") == 1:
            raise ArgumentError(
                "hosts must be host names such as figures.example, without scheme and port,"
                f" not {checks.short_repr(host)}"
            )
    # Called at each request: a host makes its client when it starts, which is after this.
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
            Route("/company/{entity_id}/progress", pages.progress),
            Mount("/static", StaticFiles(directory=Path(__file__).with_name("static"))),
        ],
        # In lower case, as browsers send them: older versions of Starlette compare them as they are written.
        middleware=[
            Middleware(
                TrustedHostMiddleware, allowed_hosts=[host.lower() for host in hosts], www_redirect=False
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
    """The endpoints. `names` maps the ids of the companies offered to their names, as far as known."""

    def __init__(
        self, client: Callable[[], Client], names: dict[str, str], example: str, history: History | None
    ) -> None:
        self._client = client
        self._names = names
        self._example = example
        self._history = history
        self._progress: dict[str, _Progress] = {}
        self._templates = Environment(
            loader=PackageLoader("asyncfin.web"), autoescape=True, trim_blocks=True, lstrip_blocks=True
        )
        self._templates.filters["printable"] = printable

    async def start(self, request: Request) -> Response:
        if self._example and "companies" not in request.query_params:
            root = request.scope.get("root_path", "")
            return RedirectResponse(f"{root}{self._example}", headers=_HEADERS)
        return self._page(request, "start.html", example=self._example)

    async def company(self, request: Request) -> Response:
        """Return the page with the question of its URL, and with its values if all of them are cached."""
        question = self._question(request, parse_qs(request.url.query, keep_blank_values=True))
        reads, context = reads_of(self._client()), dict[str, Any](texts=question.series)
        cached = [await reads.cached_catalogue(each) for each in question.companies]
        catalogues = [each for each in cached if each is not None]
        if cached[0] is not None:
            context = await asyncio.to_thread(self._series, question, cached[0])
        if len(catalogues) == len(cached) and question.series:
            try:
                context |= await self._cached_answer(question, catalogues)
                if "shown" not in context:
                    context |= await self._cost(question, catalogues)
            except SelectionError as error:
                context |= {"text": problem_of(error), "advice": _ADVICE[400]}
        context["question"] = question
        return self._page(
            request,
            "page.html",
            missing=[each for each, known in zip(question.companies, cached, strict=True) if known is None],
            # A link of this page itself: its visitor wants to see the series.
            load=request.headers.get("sec-fetch-site") == "same-origin",
            **context,
        )

    async def series(self, request: Request) -> Response:
        """Return the series that match the search, and the selected ones. Reads the catalogue."""
        question = await self._received(request)
        catalogue = await unless_gone(request, self._client().catalogue(question.companies[0]), _SECONDS)
        self._names[catalogue.entity_id] = catalogue.name
        found = await asyncio.to_thread(self._series, question, catalogue)
        return self._page(request, "series.html", **found)

    async def cost(self, request: Request) -> Response:
        """Return how many requests the question would spend. Reads catalogues that are not known."""
        question = await self._received(request)
        if not question.series:
            return self._page(request, "cost.html", requests=None)
        reading = catalogues_of(reads_of(self._client()), question.companies, max_age=_ANY_AGE)
        each = await unless_gone(request, reading, _SECONDS)
        if each.failed:
            raise each.ended or next(iter(each.failed.values()))
        return self._page(request, "cost.html", **await self._cost(question, [*each.found.values()]))

    async def answer(self, request: Request) -> Response:
        """Return the table, the charts, what was spent, and the Python for the same."""
        question = await self._received(request)
        # Visitors who request values of one company at the same time all see the progress of the last one.
        progress = self._progress[question.companies[0]] = _Progress(question.companies)
        with self._client().observed(progress):
            context = await unless_gone(request, self._answer(question), _SECONDS)
        return self._page(request, "answer.html", **context)

    async def progress(self, request: Request) -> Response:
        """Return how many queries were answered since values were last requested."""
        progress = self._progress.get(self._entity_id(request))
        return JSONResponse({"answered": progress.answered if progress else 0}, headers=_HEADERS)

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
            "unknown": [each for each in question.series if each not in chosen and each not in catalogue],
            # In the order of the search, or by group and path.
            "listed": [(row_text(catalogue, each), each) for each in listed] if question.search else [],
            "tree": [] if question.search else _tree(catalogue, listed),
            "found": len(found),
            "close": found.close,
            "hidden": len(others) - len(listed),
        }

    async def _cost(self, question: Question, catalogues: Sequence[Catalogue]) -> dict[str, Any]:
        """Return how many series the question has, and how many requests they take. No request."""
        select, reads = question.select(catalogues[0]), reads_of(self._client())
        plans = await plans_of(reads, catalogues, select, question.periods, question.versions)
        series = sum(len(plan.series) for plan in plans)
        # Each company has what it has; of a single one that has nothing the error says what is wrong.
        if not series and len(catalogues) == 1 and (error := judge(catalogues[0], select).error()):
            raise error
        return {"series": series, "requests": sum(plan.requests for plan in plans)}

    async def _cached_answer(self, question: Question, catalogues: Sequence[Catalogue]) -> dict[str, Any]:
        """Return what the answer shows if all of it is cached, and nothing otherwise. No request."""
        reads, comparisons = reads_of(self._client()), list[Comparison]()
        for version in question.versions:
            comparison = await cached_comparison(reads, _several(question, catalogues, version))
            if comparison is None:
                return {}
            comparisons.append(comparison)
        return await self._shown(question, comparisons, {}, 0)

    async def _answer(self, question: Question) -> dict[str, Any]:
        """Request what the answer shows."""
        reads = reads_of(self._client())
        # Periods of several companies are resolved over their current catalogues.
        max_age = None if len(question.companies) > 1 else _ANY_AGE
        each = await catalogues_of(reads, question.companies, max_age=max_age)
        catalogues = list(each.found.values())
        if not catalogues:
            raise each.ended or next(iter(each.failed.values()))
        cost = await self._cost(question, catalogues)
        comparisons = [
            await compare(reads, _several(question, catalogues, version)) for version in question.versions
        ]
        failed = each.failed | {name: error for one in comparisons for name, error in one.failed.items()}
        if not any(map(len, comparisons)):
            raise next(iter(failed.values()))
        return await self._shown(question, comparisons, failed, cost["requests"])

    async def _shown(
        self,
        question: Question,
        comparisons: Sequence[Comparison],
        failed: Mapping[str, AsyncfinError],
        planned: int,
    ) -> dict[str, Any]:
        panels = [
            one[entity_id] for entity_id in question.companies for one in comparisons if entity_id in one
        ]
        for panel in panels:
            self._names[panel.dataset.entity_id] = panel.dataset.name
        if not any(map(len, panels)):
            raise SelectionError("none of these companies has one of these series")
        catalogue = panels[0].catalogue
        marks = Marks()
        if self._history is not None:
            marks = await self._history.marks(panels, question.triples(catalogue))
        content = shown([panel for panel in panels if len(panel)], marks)
        return {
            "shown": content,
            "columns": [(each.fiscal_end, each.duration_months, each.label) for each in content.periods],
            "question": question,
            "spent": sum(panel.requests for panel in panels),
            "planned": planned,
            "anchors": [(each.dataset.name, each.anchor) for each in panels if each.anchor],
            "notes": [*self._missing(question, comparisons, failed), *content.notes],
            "python": question.python(catalogue),
        }

    def _missing(
        self, question: Question, comparisons: Sequence[Comparison], failed: Mapping[str, AsyncfinError]
    ) -> list[str]:
        """Return lines about the companies that do not have all of the question."""
        lines = []
        for entity_id in question.companies:
            name = self._names[entity_id] or entity_id
            if entity_id in failed:
                lines.append(f"{name}: {http_error(failed[entity_id]).text}.")
            for one in comparisons:
                missing = without_periods(one.missing.get(entity_id, {}))
                lines += [f"{name} does not have {listed(list(ids))}." for ids in missing.values()]
        return list(dict.fromkeys(lines))

    async def refused(self, request: Request, error: Exception) -> Response:
        """Return an error as a sentence and advice, as a page or in place of the fragment."""
        answer = (
            HttpError(error.status_code, str(error.detail), {})
            if isinstance(error, HTTPException)
            else http_error(error)
        )
        text = (
            problem_of(error) if isinstance(error, SelectionError) and answer.status == 400 else answer.text
        )
        context = {"text": text, "advice": _ADVICE.get(answer.status, "")}
        template = "error.html" if request.headers.get("hx-request") == "true" else "error_page.html"
        response = self._page(request, template, **context)
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

    def _question(self, request: Request, form: Mapping[str, Sequence[str]]) -> Question:
        question = Question.of(self._entity_id(request), form)
        for each in question.companies:
            self._check_offered(each)
        return question

    async def _received(self, request: Request) -> Question:
        """Return the question of a form that the explorer's own page has sent."""
        check_own_page(request.headers)
        self._entity_id(request)
        try:
            async with asyncio.timeout(_FORM_SECONDS):
                form = parse_qs((await _body(request)).decode(), keep_blank_values=True)
        except ClientDisconnect:
            raise ClientGoneError("the visitor has left") from None
        except TimeoutError:
            raise HTTPException(408, f"the form did not arrive within {_FORM_SECONDS} seconds") from None
        except ValueError:
            raise HTTPException(400, "the form is not text") from None
        return self._question(request, form)

    def _page(self, request: Request, template: str, **context: object) -> HTMLResponse:
        html = self._templates.get_template(template).render(
            root=request.scope.get("root_path", ""),
            names=self._names,
            rules=RULES,
            versions=VERSIONS,
            views=VIEWS,
            scales=SCALES,
            **context,
        )
        return HTMLResponse(html, headers=_HEADERS)


def _several(question: Question, catalogues: Sequence[Catalogue], version: ValueVersion) -> SeveralQuestion:
    """Return the question to the companies whose catalogues are known, in the same periods for all."""
    select, periods = question.select(catalogues[0]), question.resolved(catalogues)
    return SeveralQuestion([each.entity_id for each in catalogues], select, periods, version)


class _Progress:
    """An observer that counts the queries of some companies that were answered."""

    def __init__(self, entity_ids: Collection[str]) -> None:
        self._entity_ids = entity_ids
        self.answered = 0

    def __call__(self, event: Event) -> None:
        if (
            isinstance(event, RequestAnswered)
            and event.operation == "query"
            and event.entity_id in self._entity_ids
        ):
            self.answered += 1


async def _gone(request: Request, error: Exception) -> Response:
    # nginx's number for a client that has gone; only a log shows it.
    return Response(status_code=499)


def check_own_page(headers: Mapping[str, str]) -> None:
    """Raise unless a request that may spend was sent by the explorer's own page.

    A browser marks a request of another site in Sec-Fetch-Site. It sends that header only over https and to
    this machine; elsewhere it sends Origin with each POST.

    Raises:
        HTTPException: 403.
    """
    site = headers.get("sec-fetch-site")
    own = (
        _is_own(headers.get("origin", ""), headers.get("host", "")) if site is None else site == "same-origin"
    )
    if not own:
        raise HTTPException(403, "only the explorer's own page may request this")


def _is_own(origin: str, host: str) -> bool:
    """Return whether an Origin is of the same host and port as a Host, which is an allowed one."""
    try:
        sent, served = urlsplit(origin), urlsplit(f"//{host}")
        default = {"http": 80, "https": 443}.get(sent.scheme)
        return (
            default is not None
            and sent.hostname is not None
            and "@" not in sent.netloc  # no browser's
            and (sent.hostname, sent.port or default) == (served.hostname, served.port or default)
        )
    except ValueError:  # a port that is not a number
        return False


async def _body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        # Counted as it arrives: a Content-Length may be missing, or wrong.
        if len(body) > _MAX_FORM_BYTES:
            raise HTTPException(413, "the form is too large")
    return body


def _tree(
    catalogue: Catalogue, series: Iterable[CatalogueSeries]
) -> list[tuple[str, list[tuple[str, list[tuple[str, CatalogueSeries]]]]]]:
    """Return series by the names of their reporting group and scope path, each with the text of its row."""
    tree: dict[str, dict[str, list[tuple[str, CatalogueSeries]]]] = {}
    for each in series:
        paths = tree.setdefault(each.reporting_group_id, {})
        path = " / ".join(catalogue.scope_names(each.scopes))
        paths.setdefault(path, []).append((row_text(catalogue, each), each))
    # Groups may share a name.
    return [(catalogue.by_group[group].name, list(paths.items())) for group, paths in tree.items()]
