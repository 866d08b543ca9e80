"""Damage a finished extraction at random, run it again, and see what becomes of it.

``python -m tests.damage [count] [seed]`` does it 1,000 times; the tests do it a few times.
"""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
import sqlite3
import sys
import tempfile
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

import duckdb
from attrs import define, field

from asyncfin import Annual, AsyncfinError, Client, Select, extract
from asyncfin.sandbox import Sandbox
from asyncfin.sandbox.generate import generate

_COLUMNS = ("entity_id", "question", "state", "dataset_id", "rows", "bytes", "sha256", "requests", "lacking")
_VALUES = (None, 0, -1, 2**62, 1.5, "", "x", "[]", "{}", "null", b"\xff\xfe", "y" * 100_000)


@define
class Outcome:
    """What became of the damaged extractions.

    Attributes:
        errors: how many ended in which error.
        repaired: how many journals were repaired.
        whole: how many runs ended with all rows as they were.
        wrong: what broke a promise.
    """

    errors: Counter[str] = field(factory=Counter)
    repaired: int = 0
    whole: int = 0
    wrong: list[str] = field(factory=list)

    def check(self) -> None:
        """Refuse an outcome that breaks a promise."""
        assert not self.wrong, "\n".join(self.wrong)


async def damage(count: int, seed: int, place: Path) -> Outcome:
    """Damage copies of an extraction so often, and run each again."""
    source, outcome = random.Random(seed), Outcome()
    companies = [generate(number, series=15, publications=1) for number in range(4)]
    original = place / "original" / "night"
    async with Sandbox(*companies) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        await extract(client, sandbox.entities, Select(), Annual(), to=original)
        expected = _rows(original)
        for number in range(count):
            trial = place / f"trial{number}"
            shutil.copytree(original.parent, trial)
            done = [_damaged(trial, source) for _ in range(source.choice([1, 1, 2, 3]))]
            before = _files(trial)
            try:
                report = await extract(client, sandbox.entities, Select(), Annual(), to=trial / "night")
            except (AsyncfinError, OSError) as error:
                outcome.errors[type(error).__name__] += 1
                if len(str(error)) > 3000 or "\n" in str(error):
                    outcome.wrong.append(f"{done}: no single clear line: {error!s:.300}")
            except Exception as error:
                outcome.wrong.append(f"{done}: {type(error).__name__}: {error}")
            else:
                outcome.repaired += report.repaired is not None
                outcome.whole += 1
                if _rows(trial / "night") != expected:
                    outcome.wrong.append(f"{done}: other rows than before")
            if gone := before - _files(trial):
                outcome.wrong.append(f"{done}: deleted {sorted(gone)}")
            shutil.rmtree(trial)
    return outcome


def _files(trial: Path) -> set[str]:
    return {path.name for path in (trial / "night").rglob("*") if path.is_file()}


def _rows(folder: Path) -> list[object]:
    order = "entity_id, series_id, year, end_month, duration_months"
    with duckdb.connect() as connection:
        return connection.execute(f"SELECT * FROM '{folder}/*.parquet' ORDER BY {order}").fetchall()


def _damaged(trial: Path, source: random.Random) -> str:
    """Damage something, and say what."""
    journal = trial / "night.journal" / "journal.sqlite"
    files = sorted((trial / "night").glob("*.parquet"))
    match source.randrange(8):
        case 0 | 1:
            return _row_changed(journal, source)
        case 2:
            return _bytes_changed(journal, source)
        case 3:
            return _cut(journal, source)
        case 4 if files:
            return _bytes_changed(source.choice(files), source)
        case 5 if files:
            path = source.choice(files)
            path.unlink()
            return f"{path.name} deleted"
        case 6:
            shutil.rmtree(journal.parent, ignore_errors=True)
            return "journal deleted"
        case _:
            journal.parent.mkdir(exist_ok=True)
            (journal.parent / "journal.sqlite-wal").write_bytes(source.randbytes(5000))
            return "foreign write-ahead log"


def _row_changed(journal: Path, source: random.Random) -> str:
    column, value = source.choice(_COLUMNS), source.choice(_VALUES)
    # Others are damaged already, or the column refuses the value.
    with suppress(sqlite3.Error), closing(sqlite3.connect(journal)) as rows:
        where = "entity_id = (SELECT entity_id FROM entity ORDER BY random() LIMIT 1)"
        rows.execute(f"UPDATE entity SET {column} = ? WHERE {where}", [value])
        rows.commit()
    return f"{column} = {value!r:.20}"


def _bytes_changed(path: Path, source: random.Random) -> str:
    if not path.exists() or not (content := bytearray(path.read_bytes())):
        return f"{path.name} is gone"
    start, length = source.randrange(len(content)), source.choice([1, 16, 4096])
    content[start : start + length] = source.randbytes(min(length, len(content) - start))
    path.write_bytes(content)
    return f"{path.name}: {length} bytes at {start}"


def _cut(path: Path, source: random.Random) -> str:
    if not path.exists():
        return f"{path.name} is gone"
    size = source.randrange(path.stat().st_size + 1)
    path.write_bytes(path.read_bytes()[:size])
    return f"{path.name} cut to {size} bytes"


def main(count: str = "1000", seed: str = "0") -> None:
    logging.getLogger("asyncfin").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as place:
        outcome = asyncio.run(damage(int(count), int(seed), Path(place)))
    print(f"{count} damaged extractions: {outcome.whole} ended with all their rows,")
    print(f"{outcome.repaired} of them with a repaired journal; errors: {dict(outcome.errors)}")
    outcome.check()


if __name__ == "__main__":
    main(*sys.argv[1:])
