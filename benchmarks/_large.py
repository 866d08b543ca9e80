"""A sandbox with one large company, in a separate process: it is not measured."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import frozen

SERIES = 2900
_SERVER = f"""
import asyncio, sys
from asyncfin.sandbox import Sandbox
from tests.generate import generate

async def main():
    async with Sandbox(generate(1, series={SERIES}, publications=1)) as sandbox:
        print(sandbox.base_url, sandbox.token, *sandbox.entities, flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


@frozen
class Service:
    base_url: str
    token: str
    entity_id: str


@contextmanager
def service() -> Iterator[Service]:
    """Run a sandbox with one large dataset, in a separate process."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdin=pipe, stdout=pipe, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        yield Service(*process.stdout.readline().split())
        process.stdin.close()
