"""Serving the explorer on a port of this machine, for a service or for the demo
companies.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlencode

import uvicorn

from asyncfin.cache.memory import MemoryCache
from asyncfin.cli.exits import UsageError
from asyncfin.cli.listening import listening
from asyncfin.cli.output import progress_console, screen
from asyncfin.cli.service import Service
from asyncfin.cli.session import client_of
from asyncfin.client import Client
from asyncfin.model.select import Select
from asyncfin.sandbox import Sandbox
from asyncfin.sandbox.demo import demo_datasets
from asyncfin.web import explorer
from asyncfin.web.question import Question, row_text


async def serve(
    service: Service,
    offered: Mapping[str, str],
    port: int,
    *,
    max_age: float,
    root_path: str,
    hosts: Iterable[str],
) -> None:
    """Serve the explorer until Ctrl-C: of the companies offered, or of a sandbox's
    without a service.
    """
    with listening(f"--port {port}", "127.0.0.1", port) as listener:
        async with served(service, offered, max_age) as (client, companies, example):
            app = explorer(client, companies, hosts=hosts, example=example)
            server = uvicorn.Server(
                uvicorn.Config(app, log_level="warning", root_path=root_path)
            )
            announcing = asyncio.ensure_future(announce(server, example))
            try:
                # At Ctrl-C the server ends first, and then passes the signal on, which
                # cancels this task.
                with suppress(asyncio.CancelledError):
                    await server.serve(sockets=[listener])
                    await asyncio.sleep(0)
            finally:
                announcing.cancel()


@asynccontextmanager
async def served(
    service: Service, offered: Mapping[str, str], max_age: float
) -> AsyncIterator[tuple[Client, Mapping[str, str], str]]:
    """Yield a client of the service and the companies offered, or those of a sandbox
    and an example.
    """
    async with aclosing(MemoryCache()) as memory:
        if service.base_url is None and not offered:
            datasets = demo_datasets()
            async with (
                Sandbox(*datasets) as sandbox,
                Client(
                    sandbox.base_url, sandbox.token, cache=memory, max_age=86_400
                ) as client,
            ):
                names = {each.entity_id: each.name for each in datasets}
                yield client, names, await worked_example(client, sandbox)
            return
        if not offered:
            raise UsageError(
                "no company is offered: give entity ids, such as asyncfin explore "
                "ENTITY_ID, or --ids FILE or"
                " --names FILE; without a service, the demo companies are shown"
            )
        async with client_of(service, max_age=max_age, otherwise=memory) as client:
            yield client, offered, ""


async def worked_example(client: Client, sandbox: Sandbox) -> str:
    """Return the path and query of a comparison of the sandbox's companies, after
    reading its values.
    """
    catalogues = [await client.catalogue(each) for each in sandbox.entities]
    select = Select(metric_ids="Revenue", basis="consolidated", cadence="annual")
    (series,) = catalogues[0].select(select)
    text = row_text(catalogues[0], series)
    first, *others = sandbox.entities
    form = {"with": others, "series": [text], "rule": ["annual"], "last": ["5"]}
    question = Question.of(first, form)
    async with client.query_many(
        sandbox.entities, select, question.resolve(catalogues)
    ) as answers:
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
        progress_console().print(
            f"An example: {address}{example}", style="dim", soft_wrap=True
        )
    progress_console().print("Ctrl-C ends the explorer.", style="dim")
