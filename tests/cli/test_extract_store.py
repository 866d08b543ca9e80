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


@pytest.fixture
def s3() -> "Iterator[S3]":
    from tests.extraction.s3 import served

    with served() as running:
        yield running


def test_an_address_stands_where_a_folder_does(command: Command, s3: "S3") -> None:
    """The same report, whose paths are addresses; the second time nothing has changed."""
    first = command("extract", ENTITY, "--into", NIGHT, "--annual", "--json")
    assert (first.code, first.err) == (0, "")
    assert json.loads(first.out)["entities"][0]["path"] == f"{NIGHT}/{ENTITY}.parquet"
    assert s3.names() == [f"night/{ENTITY}.parquet"]
    assert "1 unchanged" in command("extract", ENTITY, "--into", NIGHT, "--annual", "--dry-run").out
    assert "1 unchanged" in command("extract", ENTITY, "--into", NIGHT, "--annual").out


def test_a_missing_bucket_is_one_line(command: Command, s3: "S3") -> None:
    """That names the address, and what to check."""
    result = command("extract", ENTITY, "--into", "s3://elsewhere/night", "--annual")
    assert result.code == 1
    assert "no such bucket" in result.line
    assert result.line.startswith(
        "asyncfin: s3://elsewhere/night can't be used: check the address, and the cred"
    )


def test_a_store_without_conditional_writes_needs_leave(
    command: Command, s3: "S3", monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal names the option."""
    monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
    refused = command("extract", ENTITY, "--into", NIGHT, "--annual")
    assert (refused.code, s3.names()) == (2, [])
    assert "--no-lock" in refused.line
    assert command("extract", ENTITY, "--into", NIGHT, "--annual", "--no-lock").code == 0
    assert s3.names() == [f"night/{ENTITY}.parquet"]
