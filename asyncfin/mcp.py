"""Tools for assistants (MCP): find a company's series, learn what a question costs, and ask it.

The service's own MCP tools count toward the same allowance (spec 8). What this local server adds are plans,
costs known beforehand, and answers that fit into an assistant's context. It needs the extra `mcp`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any

from asyncfin.client import Client
from asyncfin.errors import (
    AllowanceExhaustedError,
    AsyncfinError,
    AuthenticationError,
    BucketUnavailableError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitedError,
    SelectionError,
    ServerFailureError,
    TransportError,
    printable,
)
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.period import Annual, FiscalRange, PeriodSelection, Quarterly, Trailing
from asyncfin.model.select import Select
from asyncfin.model.words import counted
from asyncfin.optional import library
from asyncfin.plan.plan import Plan

# Before the imports below, so that a missing extra is named in words.
library("mcp", "mcp")

from mcp.server import MCPServer  # noqa: E402
from mcp.types import CallToolResult, TextContent, ToolAnnotations  # noqa: E402
from pydantic import Field  # noqa: E402

# An answer shares an assistant's context with all else that it has read.
MAX_CHARACTERS = 20_000
MAX_REQUESTS = 20

_PERIODS: dict[str, PeriodSelection] = {
    "latest year": Annual(last=1),
    "last 5 years": Annual(last=5),
    "last 10 years": Annual(last=10),
    "all years": Annual(),
    "latest quarter": Quarterly(last=1),
    "last 4 quarters": Quarterly(last=4),
    "last 8 quarters": Quarterly(last=8),
    "all quarters": Quarterly(),
    "last 12 months": Trailing(12),
    "all periods": FiscalRange(),
}
_READ_ONLY = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=True
)
_INSTRUCTIONS = (
    "Published financial figures of companies, by fiscal period. list_entities gives the companies,"
    " find_series the ids of a company's series, plan_cost what a question will spend of a daily allowance,"
    " query the values. Fiscal periods are not calendar dates; units stand in the descriptions of series."
)
# What an assistant can do about an error.
_ADVICE: tuple[tuple[type[Exception], str], ...] = (
    (AllowanceExhaustedError, "Do not ask again before resume_at."),
    (RateLimitedError, "Wait retry_after_seconds, then ask again."),
    (BucketUnavailableError, "Ask again in a minute."),
    (SelectionError, "Correct the arguments; find_series gives the ids of series."),
    (NotFoundError, "Choose a company from list_entities."),
    (AuthenticationError, "Tell the user that the access token is refused."),
    (PermissionDeniedError, "Tell the user that the account may not read this."),
    (ServerFailureError, "Ask again in a minute."),
    (TransportError, "Ask again in a minute."),
)

EntityId = Annotated[str, Field(description="the id of a company, from list_entities")]
SeriesIds = Annotated[list[str], Field(description="the ids of series, from find_series")]
# The words are in the schema and not in the type: any other word is then an error like all others.
Periods = Annotated[
    str, Field(description="which fiscal periods", json_schema_extra={"enum": list(_PERIODS)})
]
Restated = Annotated[bool, Field(description="values as last restated, instead of as first reported")]
NameWords = Annotated[str, Field(description="words that must all occur in a company's name or id")]
Words = Annotated[
    str, Field(description="words that must all occur in a series' label, ids, description or scopes")
]


def server(
    client: Client, entities: Iterable[str] | Mapping[str, str], *, max_requests: int = MAX_REQUESTS
) -> MCPServer:
    """Return an MCP server with four read-only tools over a client.

    Every answer has at most 20,000 characters, cut at whole lines, and says what it leaves out and how to ask
    for that. Errors are results with ``isError`` and structured content: error, message, retry_after_seconds,
    resume_at and do.

    Args:
        client: what to ask.
        entities: the ids of the companies on offer, or a mapping of ids to names. All others are refused.
        max_requests: the most requests that one call of `query` may plan: assistants loop.
    """
    names = dict(entities) if isinstance(entities, Mapping) else dict.fromkeys(entities, "")
    tools = _Tools(client, names, max_requests)
    # Only errors: hosts show their users what a server writes to standard error.
    made = MCPServer("asyncfin", instructions=_INSTRUCTIONS, log_level="ERROR")
    for tool in (tools.list_entities, tools.find_series, tools.plan_cost, tools.query):
        made.add_tool(tool, annotations=_READ_ONLY, structured_output=False)
    return made


class _Tools:
    """The tools; their docstrings and annotations are what an assistant reads."""

    def __init__(self, client: Client, names: dict[str, str], max_requests: int) -> None:
        self._client = client
        self._names = names
        self._max_requests = max_requests

    async def list_entities(self, words: NameWords = "") -> CallToolResult:
        """List the companies on offer: an id and, if it is known, a name a line. Spends no request."""
        lines = [f"{entity_id}\t{name}".rstrip() for entity_id, name in self._names.items()]
        wanted = words.casefold().split()
        found = [line for line in lines if all(word in line.casefold() for word in wanted)]
        return _text("companies (id, name)", found, "give words of a name")

    async def find_series(self, entity_id: EntityId, words: Words = "") -> CallToolResult:
        """Find a company's series in whose label, ids, description or scopes all words occur.

        Without words it gives an overview: groups, scopes and metrics. It spends requests only for a
        publication that has not been read before.
        """
        return await _reported(self._find_series(entity_id, words))

    async def plan_cost(
        self, entity_id: EntityId, series_ids: SeriesIds, periods: Periods = "last 5 years"
    ) -> CallToolResult:
        """Say how many requests of the daily allowance a query would spend, without asking it."""

        async def planned() -> CallToolResult:
            plan = await self._plan(entity_id, series_ids, periods, restated=False)
            series = counted(len(plan.series), "series", "series")
            return _text(f"{series}: {counted(plan.requests, 'request')}", [], "")

        return await _reported(planned())

    async def query(
        self,
        entity_id: EntityId,
        series_ids: SeriesIds,
        periods: Periods = "last 5 years",
        restated: Restated = False,
    ) -> CallToolResult:
        """Give the values of series by fiscal period, a tab-separated line each; empty: no observation."""
        return await _reported(self._query(entity_id, series_ids, periods, restated))

    async def _find_series(self, entity_id: str, words: str) -> CallToolResult:
        catalogue = await self._client.catalogue(self.offered(entity_id))
        # So that `list_entities` can name a company that was offered by its id alone.
        self._names[entity_id] = catalogue.name
        if not words.strip():
            return _overview(catalogue)
        found = []
        for series in catalogue.search(words):
            scopes = " / ".join(catalogue.scope_names(series.scopes))
            cells = (series.series_id, series.label, scopes, series.reporting_group_id, series.description)
            found.append("\t".join(cells))
        columns = "id, label, scopes, group, description"
        head = f"{catalogue.name}: {len(found):,} of {len(catalogue):,} series ({columns})"
        return _text(head, found, "use more words")

    async def _query(
        self, entity_id: str, series_ids: list[str], periods: str, restated: bool
    ) -> CallToolResult:
        plan = await self._plan(entity_id, series_ids, periods, restated=restated)
        # Planned first, since an assistant that is refused has spent only the catalogue.
        if plan.requests > self._max_requests:
            raise SelectionError(
                f"this would spend {plan.requests} requests, and a call may spend {self._max_requests}:"
                " ask for fewer series"
            )
        panel = await self._client.run(plan)
        head = (
            f"{panel.dataset.name}, publication of {panel.dataset.created_timestamp:%Y-%m-%d}"
            f" ({panel.value_version} values); {counted(panel.requests, 'request')} spent\n"
            + "\t".join(["series", *(period.label for period in panel.periods)])
        )
        rows = (
            "\t".join([series.series_id, *(value.text if value else "" for value in series.values)])
            for series in panel
        )
        return _text(head, list(rows), "ask for fewer series or periods")

    async def _plan(self, entity_id: str, series_ids: list[str], periods: str, *, restated: bool) -> Plan:
        if periods not in _PERIODS:
            raise SelectionError(f"periods must be one of: {', '.join(_PERIODS)}; not {periods!r}")
        return await self._client.plan(
            self.offered(entity_id),
            Select(series_ids=series_ids),
            _PERIODS[periods],
            value_version="latest_restated" if restated else "original",
        )

    def offered(self, entity_id: str) -> str:
        if entity_id not in self._names:
            raise SelectionError(f"{entity_id!r} is not one of the companies on offer: see list_entities")
        return entity_id


def _overview(catalogue: Catalogue) -> CallToolResult:
    lines = [f"{len(catalogue):,} series. Call find_series with words to see series."]
    lines += ("", "groups (id, series, name)")
    lines += (f"{group.reporting_group_id}\t{len(group.series)}\t{group.name}" for group in catalogue.groups)
    lines += ("", "scopes (group: names)")
    lines += (
        f"{group.name}: {', '.join(scope.name for scope in islice(group.scopes, 40))}"
        + (f" and {len(group.scopes) - 40} more" if len(group.scopes) > 40 else "")
        for group in catalogue.scope_groups
    )
    most = sorted(catalogue.by_metric.items(), key=lambda each: -len(each[1]))
    lines += ("", "metrics (id, series), the most used first")
    lines += (f"{metric}\t{len(series)}" for metric, series in most)
    return _text(f"{catalogue.name}, {catalogue.entity_id}", lines, "call find_series with words")


def _text(head: str, lines: list[str], advice: str) -> CallToolResult:
    """Return a head and as many whole lines as an answer holds, and say what is left out."""
    clean = [_in_one_line(line) for line in head.split("\n")]
    # The rest is for the line that says what is left out.
    room = MAX_CHARACTERS - sum(len(line) + 1 for line in clean) - 200
    shown: list[str] = []
    for line in map(_in_one_line, lines):
        room -= len(line) + 1
        if room < 0:
            shown.append(f"[{len(lines) - len(shown):,} of {len(lines):,} lines are left out: {advice}]")
            break
        shown.append(line)
    # The last cut is for a head that is longer than that by itself: it names all periods.
    return CallToolResult(content=[TextContent(text="\n".join([*clean, *shown])[:MAX_CHARACTERS])])


def _in_one_line(text: str) -> str:
    """Return a line with everything escaped that is not printable, but for the tabs between its cells."""
    return "\t".join(map(printable, text.split("\t")))


async def _reported(work: Awaitable[CallToolResult]) -> CallToolResult:
    """Return what the work gives, or its error as a result: the SDK would hide what an exception says."""
    try:
        return await work
    except AsyncfinError as error:
        return _error_result(error)


def _error_result(error: AsyncfinError) -> CallToolResult:
    resume_at = getattr(error, "resume_at", None)
    wait = getattr(error, "retry_after", None)
    if wait is None and resume_at is not None:
        wait = max(0.0, (resume_at - datetime.now(UTC)).total_seconds())
    do = next(
        (advice for kind, advice in _ADVICE if isinstance(error, kind)),
        "Tell the user what the message says.",
    )
    facts: dict[str, Any] = {
        "error": type(error).__name__,
        "message": str(error)[:2000],
        "retry_after_seconds": wait,
        "resume_at": resume_at.isoformat() if resume_at else None,
        "do": do,
    }
    text = f"{facts['error']}: {facts['message']} {do}"
    return CallToolResult(content=[TextContent(text=text)], structured_content=facts, is_error=True)
