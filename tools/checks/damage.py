"""Damage a finished extraction at random, run it again, and see what becomes of it.

``python -m tools.checks.damage [count] [seed]`` does it 1,000 times; the tests do it a
few times.
"""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import duckdb
from attrs import define, field

from asyncfin import Annual, AsyncfinError, Client, Select, extract
from asyncfin.sandbox import Sandbox
from tests.generate import generate


@define
class Outcome:
    """What became of the damaged extractions.

    Attributes:
        errors: how many ended in which error.
        repaired: how many runs read a damaged or missing file again.
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
    async with (
        Sandbox(*companies) as sandbox,
        Client(sandbox.base_url, sandbox.token) as client,
    ):
        await extract(client, sandbox.entities, Select(), Annual(), to=original)
        expected = _rows(original)
        for number in range(count):
            trial = place / f"trial{number}"
            shutil.copytree(original.parent, trial)
            done = [_damaged(trial, source) for _ in range(source.choice([1, 1, 2, 3]))]
            before = _files(trial)
            try:
                report = await extract(
                    client, sandbox.entities, Select(), Annual(), to=trial / "night"
                )
            except (AsyncfinError, OSError) as error:
                outcome.errors[type(error).__name__] += 1
                if len(str(error)) > 3000 or "\n" in str(error):
                    outcome.wrong.append(
                        f"{done}: no single clear line: {error!s:.300}"
                    )
            except Exception as error:
                outcome.wrong.append(f"{done}: {type(error).__name__}: {error}")
            else:
                outcome.repaired += bool(report.done)
                outcome.whole += 1
                # Damaged pages are found by a refresh only.
                refreshed = await extract(
                    client,
                    sandbox.entities,
                    Select(),
                    Annual(),
                    to=trial / "night",
                    refresh=True,
                )
                if refreshed.failed or _rows(trial / "night") != expected:
                    outcome.wrong.append(f"{done}: other rows than before")
            if gone := before - _files(trial):
                outcome.wrong.append(f"{done}: deleted {sorted(gone)}")
            shutil.rmtree(trial)
    return outcome


def _files(trial: Path) -> set[str]:
    return {path.name for path in (trial / "night").rglob("*") if path.is_file()}


def _rows(folder: Path) -> Sequence[object]:
    order = "entity_id, series_id, year, end_month, duration_months"
    with duckdb.connect() as connection:
        return connection.execute(
            f"SELECT * FROM '{folder}/*.parquet' ORDER BY {order}"
        ).fetchall()


def _damaged(trial: Path, source: random.Random) -> str:
    """Damage something, and return what."""
    beside = trial / "_night.journal"
    files = sorted((trial / "night").glob("*.parquet"))
    match source.randrange(6):
        case 0 | 1 if files:
            return _bytes_changed(source.choice(files), source)
        case 2 if files:
            return _cut(source.choice(files), source)
        case 3 if files:
            path = source.choice(files)
            path.unlink()
            return f"{path.name} deleted"
        case 4:
            shutil.rmtree(beside, ignore_errors=True)
            return "the lock's folder deleted"
        case _:
            beside.mkdir(exist_ok=True)
            (beside / f"{source.randrange(9)}.part").write_bytes(source.randbytes(5000))
            return "an unfinished file"


def _bytes_changed(path: Path, source: random.Random) -> str:
    if not path.exists() or not (content := bytearray(path.read_bytes())):
        return f"{path.name} is gone"
    start, length = source.randrange(len(content)), source.choice([1, 16, 4096])
    content[start : start + length] = source.randbytes(
        min(length, len(content) - start)
    )
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
    print(
        f"{outcome.repaired} of them after reading files again; errors: "
        f"{dict(outcome.errors)}"
    )
    outcome.check()


if __name__ == "__main__":
    main(*sys.argv[1:])
