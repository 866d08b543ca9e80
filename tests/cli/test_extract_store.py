"""`asyncfin extract` into an object store: moto's server replaces S3."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import ENTITY, Command

pytest.importorskip("moto")
pytest.importorskip("obstore")

if TYPE_CHECKING:
    from tests.extraction.s3 import S3

NIGHT = "s3://figures/night"
JOURNAL = [f"_night.journal/{name}" for name in ("confirmed.json", "last.json", "runs.jsonl")]


@pytest.fixture
def s3() -> "Iterator[S3]":
    from tests.extraction.s3 import served

    with served() as running:
        yield running


def test_url_in_place_of_a_folder(command: Command, s3: "S3") -> None:
    """The same report as of a folder; the second time nothing has changed."""
    first = command("extract", ENTITY, "--into", NIGHT, "--annual", "--json")
    assert first.code == 0
    assert json.loads(first.out)["entities"][0]["state"] == "done"
    assert s3.names() == [*JOURNAL, f"night/{ENTITY}.parquet"]
    assert "1 with a file" in command("extract", ENTITY, "--into", NIGHT, "--annual", "--dry-run").out
    assert "1 unchanged" in command("extract", ENTITY, "--into", NIGHT, "--annual").out


def test_a_missing_bucket_is_one_line(command: Command, s3: "S3") -> None:
    """That names the address, and what to check."""
    result = command("extract", ENTITY, "--into", "s3://elsewhere/night", "--annual")
    assert result.code == 7
    assert result.line.startswith("asyncfin: s3://elsewhere/night can't be used (there is no such bucket")
    assert result.line.endswith("; check the address and the credentials, or run it again later")


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (403, "the store rejects these credentials"),
        (500, "the store failed"),
        (None, "the store failed"),
    ],
)
def test_failing_store_is_one_line(
    command: Command, s3: "S3", monkeypatch: pytest.MonkeyPatch, status: int | None, reason: str
) -> None:
    """With the cause: credentials, or a store that fails or is away."""
    from asyncfin.extraction import prefix
    from tools.checks.storm import failing

    monkeypatch.setitem(prefix._RETRY, "max_retries", 1)
    with failing(s3) as proxy:
        proxy.choose = lambda *_: status  # type: ignore[method-assign]
        if status is None:
            monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        result = command("extract", ENTITY, "--into", NIGHT, "--annual")
    assert result.code != 0
    assert result.line.startswith(f"asyncfin: {NIGHT} can't be used ({reason}")
