"""Write the table of limits and defaults into docs/connecting.md, from the code.

With `--check` nothing is written, and the status is 1 if the page is not current.
"""

import inspect
import sys
from pathlib import Path

from asyncfin import Client, FileCache, MemoryCache, RedisCache, Retry, Timeouts
from asyncfin.mcp.tools import MAX_ENTITIES, MAX_REQUESTS
from asyncfin.model.query import MAX_METRIC_IDS, MAX_PAGE_SIZE, MAX_SCOPE_COMBINATIONS
from asyncfin.web.question import MAX_COMPANIES, MAX_SERIES

PAGE = Path(__file__).parents[1] / "docs" / "connecting.md"
BEGIN, END = "<!-- limits: tools/write_limits.py -->\n", "<!-- end of limits -->\n"


def default(called: object, name: str) -> object:
    return inspect.signature(called).parameters[name].default  # type: ignore[arg-type]


def write_table() -> str:
    retry, timeouts = Retry(), Timeouts()
    mebibytes = default(MemoryCache, "max_bytes") >> 20  # type: ignore[operator]
    days = default(RedisCache, "keep").days  # type: ignore[attr-defined]
    gibibytes = default(FileCache, "max_bytes") >> 30  # type: ignore[operator]
    rows = [
        (
            "one query",
            f"{MAX_METRIC_IDS} metrics, {MAX_SCOPE_COMBINATIONS} scope paths",
        ),
        ("one page", f"{MAX_PAGE_SIZE} series"),
        (
            "requests of a client in flight",
            f"`max_in_flight={default(Client, 'max_in_flight')}`",
        ),
        ("seconds for a connection", f"`Timeouts(connect={timeouts.connect:g})`"),
        (
            "seconds between two chunks of a response",
            f"`Timeouts(read={timeouts.read:g})`",
        ),
        ("seconds for a whole response", f"`Timeouts(total={timeouts.total:g})`"),
        ("attempts of a request", f"`Retry(attempts={retry.attempts})`"),
        ("seconds of attempts", f"`Retry(max_elapsed={retry.max_elapsed:g})`"),
        (
            "longest Retry-After that is waited for",
            f"`Retry(max_retry_after={retry.max_retry_after:g})`",
        ),
        (
            "seconds that bulk waits in an outage",
            f"`Retry(max_outage={retry.max_outage:g})`",
        ),
        ("memory of a cache", f"`MemoryCache(max_bytes={mebibytes} << 20)`"),
        ("size of a cache folder", f"`FileCache(max_bytes={gibibytes} << 30)`"),
        (
            "how long Redis caches",
            f"`RedisCache(keep=timedelta(days={days}))`",
        ),
        ("companies and series of the explorer", f"{MAX_COMPANIES}, {MAX_SERIES}"),
        (
            "companies and requests of an assistant's call",
            f"{MAX_ENTITIES}, {MAX_REQUESTS}",
        ),
    ]
    lines = [
        "| what | limit or default |",
        "| --- | --- |",
        *(f"| {name} | {text} |" for name, text in rows),
    ]
    return "\n".join(lines) + "\n"


def main(*options: str) -> int:
    text = PAGE.read_text(encoding="utf-8")
    before, _, after = text.partition(BEGIN)
    current = (
        before + BEGIN + "\n" + write_table() + "\n" + END + after.partition(END)[2]
    )
    if "--check" in options:
        if text != current:
            print(f"{PAGE.name} is not current: run python tools/write_limits.py")
        return int(text != current)
    PAGE.write_text(current, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
