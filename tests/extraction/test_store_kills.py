"""SIGKILL at a write of a run into an object store: the next run loses and repeats nothing.

ASYNCFIN_STORE_KILLS=1 kills at every write; by default at every third one.
"""

import asyncio
import io
import os
import signal
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
import pyarrow.parquet as pq
import pytest

from asyncfin import as_of, read_changes
from tests.extraction.fresh import fresh, second_night
from tests.extraction.s3 import BUCKET, S3, served
from tests.extraction.test_feed_faults import ALL, CONTENTS, night
from tests.extraction.test_history_properties import check_order, fetch
from tests.nights import BEGIN, LABELS, dataset_id
from tools.checks.storm import FailingProxy, failing

EVERY = int(os.environ.get("ASYNCFIN_STORE_KILLS", "3"))
Cells = dict[str, dict[tuple[str, str], float]]


@pytest.mark.timeout(600)
def test_killed_at_writes(tmp_path: Path) -> None:
    """Of each company, the state of every night that it has is that night's publication."""
    with served() as s3, failing(s3) as proxy:
        os.environ["AWS_ENDPOINT_URL"] = s3.url  # only what is killed goes by way of the proxy
        asyncio.run(night(f"s3://{BUCKET}/whole/night", 0))
        took_effect: set[tuple[bool, ...]] = set()
        step = 1
        while killed(s3, proxy, step):
            took_effect.add(check(s3, f"{step}/night", tmp_path))
            step += EVERY
        # The lock; a part and an object, or its deletion, of each company; the run, and its `head`.
        assert step > 10
        assert took_effect >= {(False, False, False), (True, True, False), (True, True, True)}


def killed(s3: S3, proxy: FailingProxy, step: int) -> bool:
    """Run the second night over a copy of the first one; return whether it was killed at this write."""
    for key in s3.names("whole/"):
        obstore.copy(s3.store, key, f"{step}/{key.partition('/')[2]}")
    # A fork of this process would have the threads of S3.
    environment = dict(os.environ) | {"AWS_ENDPOINT_URL": proxy.url}
    child = fresh().Process(target=second_night, args=(f"s3://{BUCKET}/{step}/night", environment))
    writes, started, lock = 0, threading.Event(), threading.Lock()

    def choose(method: str, _: str) -> Any:
        nonlocal writes
        with lock:
            writes += method in ("PUT", "DELETE", "POST")
            if method in ("PUT", "DELETE", "POST") and writes == step:
                started.wait()
                assert child.pid
                os.kill(child.pid, signal.SIGKILL)
        return "reset" if writes >= step else None  # nothing of a process that is dead is written

    proxy.choose = choose  # type: ignore[method-assign]
    child.start()
    started.set()
    child.join()
    proxy.choose = lambda *_: None  # type: ignore[method-assign]
    assert child.exitcode in (0, -signal.SIGKILL)
    return bool(child.exitcode)


def check(s3: S3, prefix: str, copies: Path) -> tuple[bool, ...]:
    """Run the third night, and compare with the publications; return which of the second were in place."""
    beside = prefix.replace("/", "/_")
    present = [dataset_of(s3, f"{prefix}/{each}.parquet") for each in ALL]
    took_effect = tuple(found != dataset_id(at) for at, found in enumerate(present))
    if f"{beside}.journal/lock" in s3.names():
        obstore.delete(s3.store, f"{beside}.journal/lock")  # as it is taken over after five minutes
    to = f"s3://{BUCKET}/{prefix}"
    asyncio.run(night(to, 2))
    known = sorted(set(read_changes(to).column("known_from").to_pylist()))
    fetch(s3, copies, f"{beside}.changes/")
    copy = copies / prefix
    for when in known:
        expected: Cells = {}
        for entity_id, was_in_place in zip(ALL, took_effect, strict=True):
            number = max(at for at in range(3) if BEGIN + timedelta(days=at) <= when)
            if entity_id == ALL[2]:
                # Pruned by the second night, at an hour after BEGIN and two days, or by the third one.
                gone = BEGIN + timedelta(days=2 if was_in_place else 3, hours=1)
                number = -1 if when >= gone else 0
            elif number == 1 and not was_in_place:
                number = 0
            if number >= 0:
                expected[entity_id] = {
                    (key.metric_id, label): cell.number
                    for key, cells in CONTENTS[number].items()
                    for label, cell in cells.items()
                }
        assert state(as_of(copy, when)) == expected, when
    check_order(copy)
    assert not [name for name in s3.names() if name.startswith(f"{beside}.changes/pending/")]
    assert [name for name in s3.names() if name.endswith("lock")] == []
    return took_effect


def dataset_of(s3: S3, key: str) -> str | None:
    if key not in s3.names():
        return None
    content = bytes(obstore.get(s3.store, key).bytes())
    described = pq.read_metadata(io.BytesIO(content)).metadata[b"asyncfin"].decode()
    return next(each for number in range(30) if (each := dataset_id(number)) in described)


def state(table: Any) -> Cells:
    found: Cells = {}
    for row in table.to_pylist():
        assert row["period_label"] in LABELS
        found.setdefault(row["entity_id"], {})[row["metric_id"], row["period_label"]] = row["number"]
    return found
