"""`asyncfin explore`: the explorer as a page of this machine."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

from cyclopts import Parameter
from cyclopts.validators import Number

from asyncfin.cache.memory import MemoryCache
from asyncfin.cli.changes import require_feed
from asyncfin.cli.entities import Names
from asyncfin.cli.exits import UsageError
from asyncfin.cli.options import Service, Several, entity_group, listening, require
from asyncfin.cli.output import progress_console, screen
from asyncfin.client import Client
from asyncfin.model.select import Select
from asyncfin.sandbox import Sandbox
from asyncfin.sandbox.demo import demo_datasets
from asyncfin.web.question import Question, row_text


async def explore(
    *entity_ids: str,
    ids: Annotated[Path | None, Parameter(group=entity_group)] = None,
    port: Annotated[int, Parameter(show_default=True, validator=Number(gte=0, lte=65535))] = 8766,
    max_age: Annotated[float, Parameter(show_default=True, validator=Number(gte=0))] = 3600.0,
    host: Several = (),
    root_path: str = "",
    history: str | None = None,
    names: Names = Names(),
    service: Service = Service(),
) -> None:
    """Show companies, their series and values on a page of this machine, until Ctrl-C.

    Only this machine can reach it. Where no service is named, the page shows
    the demo companies of a local sandbox. This needs the extra: pip install
    'asyncfin[web]'.

      asyncfin explore
      asyncfin explore apple nvidia --names names.csv

    Args:
        entity_ids: The companies on offer: ids, or names. [else all of --names]
        ids: A file of more companies, one a line.
        port: The port; 0 for a free one.
        max_age: For how many seconds a URL shows what was read, without a request.
        host: A host name under which a proxy reaches this page. [else only this machine's]
        root_path: The path under which a proxy passes on to this page, such as /explore.
        history: The folder or URL of an extraction with a change feed: the page marks what changed last.
    """
    for package in ("uvicorn", "starlette", "jinja2"):
        require(package, "web", "asyncfin explore")
    if history is not None:
        require_feed(history)
    # It precedes the path of every link of the page.
    if root_path and not re.fullmatch("(/[^/]+)+", root_path):
        raise UsageError(f"--root-path must be a path such as /explore, not {root_path!r}")
    import uvicorn

    from asyncfin.web import explorer

    offered = names.offered(entity_ids, ids)
    with listening(f"--port {port}", "127.0.0.1", port) as listener:
        async with served(service, offered, max_age) as (client, companies, example):
            hosts = ("127.0.0.1", "localhost", *host)
            app = explorer(client, companies, hosts=hosts, example=example, history=history)
            server = uvicorn.Server(uvicorn.Config(app, log_level="warning", root_path=root_path))
            announcing = asyncio.ensure_future(announce(server, example))
            try:
                # At Ctrl-C the server ends first, and then passes the signal on, which cancels this task.
                with suppress(asyncio.CancelledError):
                    await server.serve(sockets=[listener])
                    await asyncio.sleep(0)
            finally:
                announcing.cancel()


@asynccontextmanager
async def served(
    service: Service, offered: Mapping[str, str], max_age: float
) -> AsyncIterator[tuple[Client, Mapping[str, str], str]]:
    """Yield a client of the service and the companies offered, or those of a sandbox and an example."""
    async with aclosing(MemoryCache()) as memory:
        if service.base_url is None and not offered:
            datasets = demo_datasets()
            async with (
                Sandbox(*datasets) as sandbox,
                Client(sandbox.base_url, sandbox.token, cache=memory, max_age=86_400) as client,
            ):
                names = {each.entity_id: each.name for each in datasets}
                yield client, names, await worked_example(client, sandbox)
            return
        if not offered:
            raise UsageError(
                "no company is offered: give entity ids, such as asyncfin explore ENTITY_ID, or --ids FILE or"
                " --names FILE; without a service, the demo companies are shown"
            )
        async with service.client(max_age=max_age, otherwise=memory) as client:
            yield client, offered, ""


async def worked_example(client: Client, sandbox: Sandbox) -> str:
    """Return the path and query of a comparison of the sandbox's companies, after reading its values."""
    catalogues = [await client.catalogue(each) for each in sandbox.entities]
    select = Select(metric_ids="Revenue", basis="consolidated", cadence="annual")
    (series,) = catalogues[0].select(select)
    text = row_text(catalogues[0], series)
    first, *others = sandbox.entities
    form = {"with": others, "series": [text], "rule": ["annual"], "last": ["5"]}
    question = Question.of(first, form)
    async with client.query_many(sandbox.entities, select, question.resolved(catalogues)) as answers:
        async for _ in answers:
            pass  # they are cached
    return f"/company/{first}?{urlencode(form, doseq=True)}"


async def announce(server: Any, example: str) -> None:
    """Print the address once the server listens."""
    while not server.started:  # noqa: ASYNC110  uvicorn has no event for it
        await asyncio.sleep(0.01)
    address = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    screen().print(f"{address}/", soft_wrap=True)
    if example:
        progress_console().print(f"An example: {address}{example}", style="dim", soft_wrap=True)
    progress_console().print("Ctrl-C ends the explorer.", style="dim")
