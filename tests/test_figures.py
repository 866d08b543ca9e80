"""The documents state the numbers that the code has: limits, waits and defaults."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cyclopts")
pytest.importorskip("mcp")
pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("pyarrow")
pytest.importorskip("redis")
pytest.importorskip("starlette")

from asyncfin import Client, FileCache, MemoryCache, RedisBucket, RedisCache, Retry
from asyncfin.cache.availability import CLOSED_SECONDS, QUESTION_SECONDS, SLOW_SECONDS
from asyncfin.cache.tiered import _RELEASE_SECONDS, CLAIM_SECONDS
from asyncfin.cli.catalogues import _MOST_METRICS
from asyncfin.cli.explore import explore
from asyncfin.cli.extract import Run
from asyncfin.cli.extraction import _MOST_ENTITIES
from asyncfin.cli.feed import _MOST_ROWS
from asyncfin.cli.mcp import mcp
from asyncfin.cli.search import search
from asyncfin.cli.service import Pace
from asyncfin.extraction.holder import RENEW_SECONDS
from asyncfin.extraction.lock import STALE_SECONDS
from asyncfin.extraction.objects import _AT_ONCE
from asyncfin.extraction.parquet import ROWS_A_GROUP
from asyncfin.extraction.prefix import LAST_SECONDS, RETRY_SECONDS
from asyncfin.extraction.refusals import _ASKED_FIRST, _IN_A_ROW
from asyncfin.mcp.results import MAX_CHARACTERS
from asyncfin.mcp.tools import MAX_ENTITIES, MAX_REQUESTS
from asyncfin.model.query import MAX_METRIC_IDS, MAX_PAGE_SIZE, MAX_SCOPE_COMBINATIONS
from asyncfin.pacing.booking import _LOOK
from asyncfin.pacing.bucket import _BULK_TURN
from asyncfin.pacing.file import _LOCK_POLL, _LOCK_POLLS
from asyncfin.pacing.pace import TUNING
from asyncfin.pacing.redis import _AWAY, _FIRST_CONNECTION
from asyncfin.read.attempts import MAX_RESTARTS
from asyncfin.read.kept import MAX_PANELS, MAX_VALUES
from asyncfin.read.publications import _READ_AGAIN_SECONDS, MAX_KEPT_SERIES
from asyncfin.read.write import _SECONDS
from asyncfin.sandbox.dataset import _MAX_INFLATED
from asyncfin.sandbox.schema import MAX_DURATION
from asyncfin.table.gaps import MOST_ROWS
from asyncfin.telemetry import _EVERY, _VALID
from asyncfin.web.answer import MAX_CHARTS, MAX_COLUMNS, MAX_LINES, MAX_ROWS
from asyncfin.web.backend import _OUTAGE, _RETRY_AFTER
from asyncfin.web.guard import _FORM_SECONDS
from asyncfin.web.question import MAX_COMPANIES, MAX_FIELD, MAX_FIELDS, MAX_SERIES
from asyncfin.web.response import _ALL_KEPT_BYTES, _BUILT_INLINE, _KEPT_BYTES
from asyncfin.wire.outage import _ALONE_SECONDS, _DELAYS, _FAILURES, _LONGEST

ROOT = Path(__file__).parent.parent
WORDS = {2: "two", 3: "three", 5: "five", 6: "six", 8: "eight", 10: "ten"}


def default(called: Callable[..., object], name: str) -> Any:
    return inspect.signature(called).parameters[name].default


IN_FLIGHT = default(Client, "max_in_flight")


def word(number: float) -> str:
    return WORDS[int(number)]


def minutes(seconds: float) -> str:
    return word(seconds / 60)


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


STATED = [
    (
        "README.md",
        f"at most {MAX_METRIC_IDS} metrics and {MAX_SCOPE_COMBINATIONS} scope paths, a page has at most"
        f" {MAX_PAGE_SIZE} series",
    ),
    (
        "docs/caching.md",
        f"the panels of the last {MAX_PANELS} questions that needed no request, apart from those of more than"
        f" {MAX_VALUES:,} values",
    ),
    ("docs/caching.md", f"`MemoryCache(max_bytes={default(MemoryCache, 'max_bytes') // 1024**2} MiB)`"),
    ("docs/caching.md", f"`FileCache(folder, max_bytes={default(FileCache, 'max_bytes') // 1024**3} GiB)`"),
    ("docs/caching.md", f"keep=timedelta(days={default(RedisCache, 'keep').days}))`"),
    ("docs/caching.md", f"never delays it by more than {QUESTION_SECONDS:.0f} seconds in all"),
    ("docs/caching.md", "of up to half a second each time" * (_RELEASE_SECONDS == 0.5)),
    ("docs/caching.md", "in its last quarter of a second" * (_SECONDS == 0.25)),
    ("docs/caching.md", "takes more than a second closes the file or server" * (SLOW_SECONDS == 1)),
    ("docs/caching.md", f"to this process for {CLOSED_SECONDS:.0f} seconds"),
    ("docs/caching.md", f"one waits up to {word(CLAIM_SECONDS)} seconds for the other"),
    ("docs/caching.md", "At most once an hour for each entity and client" * (_READ_AGAIN_SECONDS == 3600)),
    ("docs/extraction.md", f"row groups of at most {ROWS_A_GROUP:,} rows"),
    ("docs/extraction.md", f"reads that metadata, {_AT_ONCE} objects at a time"),
    ("docs/extraction.md", "only written conditionally and renewed every minute" * (RENEW_SECONDS == 60)),
    ("docs/extraction.md", f"if it is not renewed for {minutes(STALE_SECONDS)} minutes"),
    ("docs/extraction.md", f"are then repeated for {word(LAST_SECONDS)} seconds in all"),
    ("docs/extraction.md", "OSError after trying for a minute" * (RETRY_SECONDS == 60)),
    ("docs/extraction.md", f"`client.max_in_flight` of those ({IN_FLIGHT} by default)"),
    ("docs/extraction.md", f"its entity starts over, at most {word(MAX_RESTARTS)} times"),
    ("docs/how/exactness.md", f"After {word(MAX_RESTARTS)} restarts"),
    ("docs/how/pacing.md", f'`"bulk"` gets every {"tenth" * (_BULK_TURN == 9)} grant'),
    (
        "docs/how/pacing.md",
        f"After {word(_FAILURES)} failures in a row that concern the service (5xx, 408, no connection, no"
        " complete response), and that concern several entities or"
        f" {'half' * (_ALONE_SECONDS == 30)} a minute",
    ),
    (
        "docs/how/pacing.md",
        "{:.0f} second after the beginning, then {:.0f}, {:.0f}, {:.0f}, {:.0f} and every {:.0f}".format(
            *_DELAYS
        ),
    ),
    ("docs/how/pacing.md", f"up to {minutes(_LONGEST)} minutes"),
    ("docs/operations.md", f"{word(_FAILURES)} failures in a row"),
    ("docs/operations.md", f"Visitors get 503 with `Retry-After: {_OUTAGE}`"),
    ("docs/operations.md", f"Visitors get 503 with `Retry-After: {_RETRY_AFTER}`"),
    (
        "docs/operations.md",
        f"the first {_IN_A_ROW} companies were refused, and so were {word(_ASKED_FIRST)} of the others",
    ),
    ("docs/operations.md", f"at most {QUESTION_SECONDS:.0f} seconds slower"),
    ("docs/operations.md", f"after `--grace` seconds ({default(Run, 'grace'):.0f})"),
    ("docs/operations.md", f"up to {MAX_KEPT_SERIES:,} series"),
    ("docs/operations.md", f"a visitor does not wait for {word(Retry().attempts)} attempts"),
    ("docs/operations.md", f"at most `max_in_flight` ({IN_FLIGHT}) of each client"),
    ("docs/cli.md", f"a 403 (3) for the first {_IN_A_ROW} entities, if {word(_ASKED_FIRST)} of the others"),
    ("docs/cli.md", f"in which the service has failed (default {Retry().max_outage:.0f})"),
    ("docs/cli.md", f"at most {_MOST_METRICS} are printed"),
    ("docs/cli.md", f"[--limit {inspect.signature(search).parameters['limit'].default}]"),
    ("docs/cli.md", f"the newest {_MOST_ROWS} changes"),
    ("docs/cli.md", f"the table of the first {_MOST_ROWS} rows"),
    ("docs/cli.md", f"after so many seconds (default {Run().grace:.0f}; 0: at once)"),
    ("docs/cli.md", f"requests may be in flight, and entities in progress (default {Pace().max_in_flight})"),
    ("docs/cli.md", f"are then repeated for {word(LAST_SECONDS)} seconds in all"),
    ("docs/cli.md", "counts those beyond a thousand" * (_MOST_ENTITIES == 1000)),
    ("docs/dataset-format.md", f"inflates at most {_MAX_INFLATED >> 20} MiB"),
    ("docs/dataset-format.md", f"duration 0 to {MAX_DURATION:,}"),
    ("docs/pacing.md", f"a command for `silent` seconds ({default(RedisBucket, 'silent')})"),
    ("docs/pacing.md", f"retried in the background, at most every {_AWAY:.0f} seconds"),
    ("docs/pacing.md", f"requests wait up to {_FIRST_CONNECTION:.0f} seconds for the first connection"),
    ("docs/pacing.md", f"wait for up to {word(_LOCK_POLL * _LOCK_POLLS)} seconds and then get"),
    ("docs/pacing.md", "used-up allowance within half a second" * (_LOOK == 0.5)),
    (
        "docs/pacing.md",
        f"one of the next {word(TUNING.starts)} | back to what got through, at least {TUNING.back} of the"
        " rate",
    ),
    (
        "docs/pacing.md",
        f"doubles, up to {2**TUNING.doublings} times or {'a minute' * (TUNING.longest_wait == 60)}; the rate"
        f" stays ({TUNING.little}), and rises by {percent(TUNING.hope - 1)} from the second one in a row on,"
        f" at most {TUNING.starved - 1} times",
    ),
    (
        "docs/pacing.md",
        f"one of few (under {percent(TUNING.tolerated)}), irregular ones, {percent(1 - TUNING.below)} below"
        f" the rate that failed | the rate stays ({TUNING.little}), and the rate that failed is assumed to be"
        f" {percent(TUNING.raised - 1)} higher",
    ),
    ("docs/pacing.md", "less than a quarter" * (TUNING.regular == 0.25)),
    ("docs/pacing.md", f"the rate becomes what got through, at least {TUNING.half} of it"),
    (
        "docs/pacing.md",
        f"lower by {percent(TUNING.weight * TUNING.recent**2)} if isolated, by up to {percent(TUNING.most)}",
    ),
    ("docs/pacing.md", f"at a speed of {TUNING.pull:.0f} per climb"),
    (
        "docs/pacing.md",
        f"at a speed of {TUNING.push:.0f} per climb, and a drift of {percent(TUNING.drift)} per climb",
    ),
    (
        "docs/pacing.md",
        f"takes {TUNING.climb_grants:.0f} grants, or {TUNING.climb_at_most / 60:.0f} minutes if that is less",
    ),
    ("docs/pacing.md", f"takes at least {TUNING.climb_seconds:.0f} seconds"),
    ("docs/pacing.md", f"waits of more than {TUNING.long_wait:.0f} seconds"),
    ("docs/schema.md", f"a run of more than {MOST_ROWS} has none"),
    ("docs/reference/events.md", f"at most every {_EVERY:.0f} seconds"),
    ("docs/reference/events.md", f"a state of more than {_VALID:.0f} seconds ago"),
    ("docs/web.md", f"Up to {MAX_COMPANIES} companies are compared"),
    (
        "docs/web.md",
        f"At most {MAX_CHARTS} charts of {MAX_LINES} lines, {MAX_ROWS} rows and"
        f" {MAX_COLUMNS} periods are shown",
    ),
    (
        "docs/web.md",
        f"A form has {_FORM_SECONDS} seconds to arrive, at most {MAX_FIELDS:,} fields of {MAX_FIELD:,}"
        f" characters, and {MAX_SERIES} series",
    ),
    (
        "docs/web.md",
        f"Bodies whose values take more than about {_BUILT_INLINE // 1024} KiB are built in a thread",
    ),
    ("docs/web.md", f"if that has at most {MAX_VALUES:,} values"),
    ("docs/web.md", f"(`--max-age`, {default(explore, 'max_age'):.0f} s)"),
    ("docs/web.md", f"the current one for `--max-age` ({default(mcp, 'max_age'):.0f}) seconds"),
    (
        "docs/web.md",
        f"A body of at most {_KEPT_BYTES // 1024} KiB is kept with its panel, all of a process up to"
        f" {_ALL_KEPT_BYTES // 1024**2} MiB",
    ),
    ("docs/web.md", f"`entities` are at most {word(MAX_ENTITIES)} ids"),
    ("docs/web.md", f"No call sends more than `--max-requests` ({MAX_REQUESTS})"),
    ("docs/web.md", f"Every result has at most {MAX_CHARACTERS:,} characters"),
]


@pytest.mark.parametrize(("page", "sentence"), STATED)
def test_a_page_states_the_number_that_the_code_has(page: str, sentence: str) -> None:
    assert sentence
    assert sentence in " ".join((ROOT / page).read_text().split())


def test_each_session_of_nox_is_named_for_contributors() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text().partition("## Structure")[0]
    sessions = re.findall(r"@nox\.session.*?\ndef (\w+)", (ROOT / "noxfile.py").read_text(), re.DOTALL)
    assert len(sessions) > 15
    assert not [name for name in sessions if not re.search(rf"`{name}`|nox -s {name}\b", text)]
