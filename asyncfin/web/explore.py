"""The explorer: a page on which people choose a company's series and see their values and costs.

A GET never sends a request to the service: it shows values only if they are cached. What may spend a request
is a POST, and is refused unless it comes from the explorer's own page. Other host names that point at this
machine are refused.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from asyncfin.client import Client
from asyncfin.errors import AsyncfinError, SelectionError, printable
from asyncfin.events import Event, RequestAnswered
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.period import Period
from asyncfin.model.series import CatalogueSeries
from asyncfin.optional import library
from asyncfin.table.panel import Panel
from asyncfin.web.backend import ClientGoneError, HttpError, http_error, unless_gone
from asyncfin.web.question import RULES, VERSIONS, Question

library("starlette", "web")
library("jinja2", "web")

from jinja2 import Environment, PackageLoader  # noqa: E402
from starlette.applications import Starlette  # noqa: E402
from starlette.exceptions import HTTPException  # noqa: E402
from starlette.middleware import Middleware  # noqa: E402
from starlette.middleware.trustedhost import TrustedHostMiddleware  # noqa: E402
from starlette.requests import ClientDisconnect, Request  # noqa: E402
from starlette.responses import HTMLResponse, JSONResponse, Response  # noqa: E402
from starlette.routing import Mount, Route  # noqa: E402
from starlette.staticfiles import StaticFiles  # noqa: E402

# How much of a large company or answer a page shows; the rest is counted, and found by searching.
MAX_SERIES_SHOWN = 400
MAX_ROWS = 200
MAX_COLUMNS = 120
MAX_LINES = 12
MAX_SEARCH = 200

_SECONDS = 300.0
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
) -> Starlette:
    """Return the explorer as an ASGI app, to be served by itself or mounted in another.

        app.mount("/explore", explorer(get_client, entity_ids))

    The page shows the companies, the series of one as a tree with a search box, period rules, what a question
    costs before and after, the values' texts as a table, a chart, and the Python that gives the same.

    Args:
        client: a client, or a function of no arguments that returns the running one: a mounted app's own
            lifespan does not run, so the host makes the client and closes it.
        entities: the ids of the companies to offer, or a mapping of ids to names. All other ids are 404.
            A name that is not given is shown once the company has been opened.
        hosts: the host names that the page may be reached under. Any other Host header is refused with 400,
            so that no foreign page can reach it by a name of its own.

    Raises:
        ImportError: the extra `web` is not installed.
    """
    names = dict(entities) if isinstance(entities, Mapping) else dict.fromkeys(entities, "")
    # Asked at each request: a host makes its client when it starts, which is after this.
    pages = _Pages(client if callable(client) else lambda: client, names)
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
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)],
        exception_handlers={
            AsyncfinError: pages.refused,
            TimeoutError: pages.refused,
            HTTPException: pages.refused,
            ClientGoneError: _nobody,
        },
    )


class _Pages:
    """The endpoints. `names` maps the ids of the companies on offer to their names, as far as known."""

    def __init__(self, client: Callable[[], Client], names: dict[str, str]) -> None:
        self._client = client
        self._names = names
        self._progress: dict[str, _Progress] = {}
        self._templates = Environment(
            loader=PackageLoader("asyncfin.web"), autoescape=True, trim_blocks=True, lstrip_blocks=True
        )
        self._templates.filters["printable"] = printable

    async def start(self, request: Request) -> Response:
        return self._page(request, "page.html", entity_id="")

    async def company(self, request: Request) -> Response:
        return self._page(request, "page.html", entity_id=self._entity_id(request))

    async def series(self, request: Request) -> Response:
        """Return the tree of the series that match the search, and the chosen ones. Reads the catalogue."""
        entity_id, question = await self._received(request)
        catalogue = await unless_gone(request, self._client().catalogue(entity_id), _SECONDS)
        self._names[entity_id] = catalogue.name
        if len(question.search) > MAX_SEARCH:
            raise SelectionError(f"a search must have at most {MAX_SEARCH} characters")
        found = catalogue.search(question.search)
        chosen = {each: catalogue[each] for each in question.series_ids if each in catalogue}
        others = [series for series in found if series.series_id not in chosen]
        shown = others[:MAX_SERIES_SHOWN]
        return self._page(
            request,
            "series.html",
            entity_id=entity_id,
            catalogue=catalogue,
            chosen=list(chosen.values()),
            tree=_tree(catalogue, shown),
            found=len(found),
            hidden=len(others) - len(shown),
            search=question.search.strip(),
        )

    async def cost(self, request: Request) -> Response:
        """Return how many requests the question would spend."""
        entity_id, question = await self._received(request)
        if not question.series_ids:
            return self._page(request, "cost.html", plan=None)
        plan = await unless_gone(
            request,
            self._client().plan(
                entity_id, question.select, question.periods, value_version=question.value_version
            ),
            _SECONDS,
        )
        return self._page(request, "cost.html", plan=plan)

    async def answer(self, request: Request) -> Response:
        """Return the table, the chart, what was spent, and the Python that gives the same."""
        entity_id, question = await self._received(request)
        client = self._client()
        # Of visitors who ask about one company at the same time all see the progress of the last to begin.
        progress = self._progress[entity_id] = _Progress(entity_id)
        with client.observed(progress):
            plan = await unless_gone(
                request,
                client.plan(
                    entity_id, question.select, question.periods, value_version=question.value_version
                ),
                _SECONDS,
            )
            panel = await unless_gone(request, client.run(plan), _SECONDS)
            rows = [
                (series, panel.catalogue.scope_names(series.scopes), series.values)
                for series in panel.series[:MAX_ROWS]
            ]
            charts, hidden = _charts(panel)
        return self._page(
            request,
            "answer.html",
            panel=panel,
            plan=plan,
            rows=rows,
            first=max(0, len(panel.periods) - MAX_COLUMNS),
            durations={period.duration_months for period in panel.periods},
            charts=charts,
            lines_hidden=hidden,
            python=question.python(entity_id),
        )

    async def progress(self, request: Request) -> Response:
        """Return how many queries of the company were answered since values were last asked for."""
        progress = self._progress.get(self._entity_id(request))
        return JSONResponse({"answered": progress.answered if progress else 0}, headers=_HEADERS)

    async def refused(self, request: Request, error: Exception) -> Response:
        """Return an error as a sentence and advice, as a page or in place of the fragment."""
        answer = (
            HttpError(error.status_code, str(error.detail), {})
            if isinstance(error, HTTPException)
            else http_error(error)
        )
        context = {"text": answer.text, "advice": _ADVICE.get(answer.status, "")}
        template = "error.html" if _from_htmx(request) else "error_page.html"
        response = self._page(request, template, **context)
        response.status_code = answer.status
        response.headers.update(answer.headers)
        return response

    def _entity_id(self, request: Request) -> str:
        entity_id: str = request.path_params["entity_id"]
        if entity_id not in self._names:
            raise HTTPException(404, "this page does not offer that company")
        return entity_id

    async def _received(self, request: Request) -> tuple[str, Question]:
        """Return the company and the question of a form that the explorer's own page has sent."""
        check_own_page(request.headers)
        entity_id = self._entity_id(request)
        try:
            async with asyncio.timeout(_FORM_SECONDS):
                form = parse_qs((await _body(request)).decode(), keep_blank_values=True)
        except ClientDisconnect:
            raise ClientGoneError("the visitor has left") from None
        except TimeoutError:
            raise HTTPException(408, f"the form did not arrive within {_FORM_SECONDS} seconds") from None
        except ValueError:
            raise HTTPException(400, "the form is not text") from None
        return entity_id, Question.of(form)

    def _page(self, request: Request, template: str, **context: object) -> HTMLResponse:
        html = self._templates.get_template(template).render(
            root=request.scope.get("root_path", ""),
            names=self._names,
            rules=RULES,
            versions=VERSIONS,
            max_rows=MAX_ROWS,
            **context,
        )
        return HTMLResponse(html, headers=_HEADERS)


class _Progress:
    """An observer that counts the queries of a company that were answered."""

    def __init__(self, entity_id: str) -> None:
        self._entity_id = entity_id
        self.answered = 0

    def __call__(self, event: Event) -> None:
        if isinstance(event, RequestAnswered) and (event.operation, event.entity_id) == (
            "query",
            self._entity_id,
        ):
            self.answered += 1


async def _nobody(request: Request, error: Exception) -> Response:
    # nginx's number for a client that has gone; nobody reads it but a log.
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


def _from_htmx(request: Request) -> bool:
    return request.headers.get("hx-request") == "true"


def _tree(
    catalogue: Catalogue, shown: Iterable[CatalogueSeries]
) -> list[tuple[str, list[tuple[str, list[CatalogueSeries]]]]]:
    """Return the series by reporting group and scope path, with the names of both."""
    names = {group.reporting_group_id: group.name for group in catalogue.groups}
    tree: dict[str, dict[str, list[CatalogueSeries]]] = {}
    for series in shown:
        paths = tree.setdefault(names[series.reporting_group_id], {})
        paths.setdefault(" / ".join(catalogue.scope_names(series.scopes)), []).append(series)
    return [(group, list(paths.items())) for group, paths in tree.items()]


def _charts(panel: Panel) -> tuple[list[dict[str, object]], int]:
    """Return a chart for each number format, and how many lines are left out of them.

    A chart has a line for each series and duration, by fiscal end. Amounts and ratios do not share a scale. A
    gap is None. A fiscal end at which there is no period of a line's duration is "", which is no gap.
    """
    periods = _with_gaps(panel)
    ends = sorted({period.fiscal_end for period in periods})
    # Of periods with the same end the longest gives its label: FY2021, not 2021-Q4.
    labels = {period.fiscal_end: period.label for period in sorted(periods, key=lambda p: p.duration_months)}
    lines: list[tuple[str, dict[str, object]]] = []
    for series in panel:
        by_duration: dict[int, dict[int, float | None]] = {}
        values = dict(series.observations())
        for period in periods:
            number = values[period].number if period in values else None
            by_duration.setdefault(period.duration_months, {})[period.fiscal_end] = number
        filled = {
            months: line for months, line in by_duration.items() if any(n is not None for n in line.values())
        }
        name = " / ".join(
            [printable(series.label), *map(printable, panel.catalogue.scope_names(series.scopes))]
        )
        for months, line in filled.items():
            label = name if len(filled) == 1 else f"{name}, {months} months"
            numbers = [line.get(end, "") for end in ends]
            lines.append((series.number_format, {"label": label, "numbers": numbers}))
    by_format: dict[str, list[dict[str, object]]] = {}
    for number_format, drawn in lines[:MAX_LINES]:
        by_format.setdefault(number_format, []).append(drawn)
    axis = {"ends": ends, "labels": [labels[end] for end in ends]}
    return [{**axis, "lines": each} for each in by_format.values()], max(0, len(lines) - MAX_LINES)


def _with_gaps(panel: Panel) -> list[Period]:
    """Return the panel's periods, and those that the catalogue has between them of the same durations.

    A panel of a range lists only periods with a value, so a line would lead over a quarter without one.
    """
    durations = {period.duration_months for period in panel.periods}
    ends = [period.fiscal_end for period in panel.periods]
    between = (
        period
        for period in panel.catalogue.periods
        if period.duration_months in durations and min(ends) <= period.fiscal_end <= max(ends)
    )
    return sorted({*panel.periods, *between})
