"""`asyncfin sandbox`: the local service as a separate process."""

from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from asyncfin.cli.exits import UsageError
from asyncfin.sandbox import Dialect

_DIALECT = Group("What the service description leaves open", sort_key=1)


async def sandbox(
    *datasets: Path,
    demo: bool = False,
    host: Annotated[str, Parameter(show_default=True)] = "127.0.0.1",
    public_url: str | None = None,
    port: Annotated[
        int, Parameter(show_default=True, validator=Number(gte=0, lte=65535))
    ] = 8765,
    store: str = ":memory:",
    allowance: Annotated[int | None, Parameter(validator=Number(gte=0))] = None,
    rate: Annotated[float | None, Parameter(validator=Number(gt=0))] = None,
    burst: Annotated[int, Parameter(validator=Number(gte=1))] = 1,
    fault: tuple[str, ...] = (),
    dialect: Annotated[
        Dialect, Parameter(group=_DIALECT, negative_bool="no-")
    ] = Dialect(),
) -> None:
    """Run a local service, or show a demo of it.

    It serves the given dataset files, or the demo companies, until Ctrl-C. On
    standard output it prints one line to paste into another shell, where the other
    commands and your own programs then find the service. Each start issues a new
    token. With --demo it reads real figures from the service, prints them, and ends.

      asyncfin sandbox --demo
      asyncfin sandbox
      asyncfin sandbox company.json.gz --port 0 --allowance 100
      asyncfin sandbox --fault status:status=503,share=0.1 --dialect.gzip
      asyncfin sandbox --host 0.0.0.0 --public-url http://sandbox:8765

    Faults, and the arguments of each:

      latency   the response is delayed: seconds
      status    this response instead: status, retry_after, code, body
      drop      the connection is reset: after (a share of the body)
      truncate  the connection is closed within the body: after
      slow      the body is sent in pieces: seconds
      hang      no response is sent
      switch    a publication becomes current: publication (a dataset file)

    All take operation (dataset, catalogue, query, usage, limits), nth (only
    the nth of those requests), share (0 to 1, of those) and seed.

    Args:
        datasets: Dataset files, JSON or gzipped JSON, of the format asyncfin-dataset/1.
        demo: Show real figures, read over HTTP from the service, and end.
        host: The address to listen on; 0.0.0.0 or :: for all addresses of this machine.
        public_url: The URL under which others reach it, such as http://sandbox:8765.
            [default: this machine]
        port: The port; 0 for a free one.
        store: A SQLite file for publications, tokens and counts. [default: in memory]
        allowance: Data requests per day. [default: no limit]
        rate: Data requests per second. [default: no limit]
        burst: How many data requests the rate permits at once.
        fault: A fault, as KIND:name=value,...; repeatable; see above.
    """
    if demo:
        if datasets or fault:
            raise UsageError(
                "--demo shows the demo companies: leave dataset files and faults out"
            )
        from asyncfin.cli.tour import show

        await show()
        return

    from asyncfin.cli.serving import serve

    await serve(
        datasets,
        fault,
        host=host,
        public_url=public_url,
        port=port,
        store=store,
        allowance=allowance,
        rate=rate,
        burst=burst,
        dialect=dialect,
    )
