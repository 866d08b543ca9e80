"""What goes wrong: with one entity, with the account, and with the disk."""

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from asyncfin import (
    Annual,
    Client,
    Select,
    SelectionError,
    extract,
)
from asyncfin.sandbox import Sandbox, Status
from tests.extraction.conftest import COMPANIES, FIRST, IDS, UNKNOWN_ID, annual, names, rows


async def test_bad_entity_does_not_stop_others(client: Client, folder: Path) -> None:
    """An entity that fails is reported with what the service's support asks for; the others go on."""
    report = await extract(client, (IDS[0], UNKNOWN_ID, IDS[1]), Select(), Annual(), to=folder)
    assert [each.state for each in report.entities] == ["done", "failed", "done"]
    (failed,) = report.failed
    assert failed.failure is not None
    assert (failed.entity_id, failed.requests) == (UNKNOWN_ID, 1)
    assert (failed.failure.error, failed.failure.status) == ("NotFoundError", 404)
    assert failed.failure.request_id
    assert failed.failure.request_id in str(report)
    assert rows(folder) == annual(*FIRST[:2])


async def test_value_breaks_spec_never_reaches_file(sandbox: Sandbox, client: Client, folder: Path) -> None:
    """All fields are decoded before the file is put in place, and the one of before stays."""
    await extract(client, IDS[:1], Select(), Annual(), to=folder)
    publication = COMPANIES[0].publications[1]
    broken = {
        series_id: [(at, value | {"text": 7}, None) for at, value, _ in rows]
        for series_id, rows in publication.values.items()
    }
    sandbox.publish(evolve(publication, values=broken))
    report = await extract(client, IDS[:1], Select(), Annual(), to=folder)
    assert [each.failure.error for each in report.failed if each.failure] == ["MalformedAnswerError"]
    assert rows(folder) == annual(FIRST[0])


async def test_token_service_echoes_reaches_no_file(sandbox: Sandbox, client: Client, folder: Path) -> None:
    """An echoed token is cut out of the error before anything is written."""
    body = b'{"error":{"code":"forbidden","message":"no access with %b"}}' % sandbox.token.encode()
    sandbox.inject(Status(operation="query", status=403, body=body))
    report = await extract(client, IDS, Select(), Annual(), to=folder)
    assert len(report.failed) == len(IDS)
    assert sandbox.token not in str(report) + repr(report)
    written = [path for path in folder.parent.rglob("*") if path.is_file()]
    assert all(sandbox.token.encode() not in path.read_bytes() for path in written)
    assert report.failed[0].failure is not None
    assert "no access with" in report.failed[0].failure.message


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"entity_ids": [""]}, "entity_id"),
        ({"entity_ids": []}, "entity_ids"),
        ({"entity_ids": ["O-aa", "O-AA"]}, "differ only in case"),
        ({"entity_ids": ["O-" + "a" * 246]}, "too long for the name of a file"),
        ({"select": Select(where=lambda series: True)}, "name"),
        ({"select": "everything"}, "select"),
        ({"periods": "FY2024"}, "periods"),
        ({"value_version": "newest"}, "value_version"),
        ({"on_error": "ignore"}, "on_error"),
        ({"to": "/"}, "to"),
        ({"to": ""}, "to must be the path of a folder, or an address such as s3://bucket/prefix, not ''"),
        ({"to": None}, "to must be the path of a folder, or an address such as s3://bucket/prefix, not None"),
        ({"client": None}, "client must be a Client"),
        ({"entity_ids": None}, "entity_ids"),
        ({"entity_ids": [["a"]]}, "entity_id"),
        ({"refresh": 1}, "refresh must be a bool"),
        ({"replace": None}, "replace must be a bool"),
        ({"wait": "no"}, "wait must be a bool"),
        ({"stop": 5}, "stop must be an Event"),
        ({"progress": 5}, "progress must be a function that is not async"),
        ({"progress": asyncio.sleep}, "progress must be a function that is not async"),
    ],
)
async def test_wrong_argument_refused_before_anything_happens(
    sandbox: Sandbox, client: Client, folder: Path, options: dict[str, Any], named: str
) -> None:
    """One error names it; no request is spent and no folder made."""
    right: dict[str, Any] = {"client": client, "entity_ids": IDS, "select": Select(), "periods": Annual()}
    with pytest.raises(SelectionError, match=named):
        await extract(**({"to": folder} | right | options))
    assert (sandbox.log, names(folder.parent)) == ([], [])


@pytest.fixture(params=[0o555, 0o777])
def read_only(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder that this process may read and not write, also where the tests run as root.

    The journal's may be written or not.
    """
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        (place / "night").mkdir()
        (place / "_night.journal").mkdir()
        for path in (place / "night", place):
            path.chmod(0o555)
        (place / "_night.journal").chmod(request.param)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)
        yield place / "night"
        if root:
            os.seteuid(0)
        for path in (place, place / "night", place / "_night.journal"):
            path.chmod(0o755)


async def test_read_only_folder_clear_error(
    sandbox: Sandbox, client: Client, folder: Path, read_only: Path
) -> None:
    """A read-only folder is one error that names it, or its file, before a request is spent."""
    with pytest.raises(PermissionError, match="/night"):
        await extract(client, IDS, Select(), Annual(), to=read_only)
    assert sandbox.log == []


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="there is no /proc here")
async def test_impossible_folder_is_named(client: Client) -> None:
    """As it was given, and not as a file that the user has never seen."""
    with pytest.raises(FileNotFoundError, match=r"can't be written .*: '/proc/night'"):
        await extract(client, IDS, Select(), Annual(), to="/proc/night")
