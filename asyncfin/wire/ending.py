"""How tasks that nobody waits for any longer are brought to their end."""

import asyncio
from collections.abc import Collection
from typing import Any


async def end(tasks: "Collection[asyncio.Task[Any]]") -> None:
    """Cancel tasks and wait until all have ended, also when this is cancelled meanwhile.

    What they end with is nobody's concern any more, so the loop does not report it as lost.
    """
    for task in tasks:
        task.cancel()
    cancelled = None
    while pending := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(pending)
        except asyncio.CancelledError as error:
            cancelled = error
    for task in tasks:
        if not task.cancelled():
            task.exception()
    if cancelled is not None:
        raise cancelled
