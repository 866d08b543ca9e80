"""What goes wrong: with one entity, with the account, and with the disk."""

import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from attrs import evolve

from asyncfin import (
    Annual,
    AuthenticationError,
    BucketUnavailableError,
    Client,
    ExtractProgress,
    FileBucket,
    FiscalRange,
    NotFoundError,
    Retry,
    Select,
    SelectionError,
    extract,
)
from asyncfin.events import Event, Restarted
from asyncfin.sandbox import Account, Sandbox, Status, Switch
from tests.extraction.conftest import COMPANIES, FIRST, IDS, UNKNOWN_ID, annual, names, only, rows
from tests.extraction.fresh import on_a_full_disk, processes
from tests.generate import generate


async def test_one_bad_entity_does_not_stop_the_others(client: Client, folder: Path) -> None:
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


@pytest.mark.skipif(sys.platform == "win32", reason="there is no FileBucket on Windows")
@pytest.mark.parametrize("on_error", ["continue", "raise"])
async def test_a_shared_bucket_out_of_reach_ends_the_run_with_its_report(
    sandbox: Sandbox, folder: Path, tmp_path: Path, on_error: Literal["continue", "raise"]
) -> None:
    """No entity has failed; the next run goes on with what is left."""
    place = tmp_path / "bucket"

    def take_away(progress: ExtractProgress) -> None:
        if progress.done and place.is_file():
            place.unlink()
            place.mkdir()

    async with Client(sandbox.base_url, sandbox.token, bucket=FileBucket(place)) as client:
        asked: dict[str, Any] = {"to": folder, "on_error": on_error}
        report = await extract(client, IDS, Select(), Annual(), **asked, progress=take_away)
        assert isinstance(report.stopped, BucketUnavailableError)
        assert f"ended early: {place} can't be used" in str(report)
        assert (len(report.failed), bool(report.done), bool(report.left)) == (0, True, True)
        place.rmdir()
        after = await extract(client, IDS, Select(), Annual(), **asked)
    assert (len(after.unchanged), len(after.done)) == (len(report.done), len(report.left))
    assert rows(folder) == annual(*FIRST)


async def test_a_failed_entity_is_tried_again_by_the_next_run(
    sandbox: Sandbox, client: Client, folder: Path
) -> None:
    """The next run tries a failed entity again, also one whose answer broke the spec."""
    sandbox.inject(Status(operation="query", nth=1, status=200, body=b"{}"))
    report = await extract(client, IDS[:1], Select(), Annual(), to=folder)
    assert [each.failure.error for each in report.failed if each.failure] == ["MalformedAnswerError"]
    assert names(folder) == []
    assert len((await extract(client, IDS[:1], Select(), Annual(), to=folder)).done) == 1
    assert len((await extract(client, IDS[:1], Select(), Annual(), to=folder)).unchanged) == 1


async def test_a_value_that_breaks_the_spec_never_reaches_a_file(
    sandbox: Sandbox, client: Client, folder: Path
) -> None:
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


async def test_an_error_can_end_the_run_instead(client: Client, folder: Path) -> None:
    """With on_error="raise" the first failure comes out as itself."""
    with pytest.raises(NotFoundError):
        await extract(client, (UNKNOWN_ID, *IDS), Select(), Annual(), to=folder, on_error="raise")
    report = await extract(client, IDS, Select(), Annual(), to=folder)
    assert len(report.done) + len(report.unchanged) == len(IDS)


async def test_a_publication_that_changes_meanwhile_is_read_whole(
    sandbox: Sandbox, client: Client, folder: Path
) -> None:
    """The file is of the new publication alone, and observers see that the read started over."""
    sandbox.inject(Switch(operation="query", nth=1, publication=COMPANIES[0]))
    events: list[Event] = []
    with client.observed(events.append):
        report = await extract(client, IDS[:1], Select(), Annual(), to=folder)
    assert [event for event in events if isinstance(event, Restarted)] == [
        Restarted("read_entity", IDS[0], 1)
    ]
    assert [each.dataset_id for each in report.done] == [COMPANIES[0].publications[1].dataset_id]
    assert rows(folder) == annual(COMPANIES[0])


@pytest.mark.virtual
async def test_a_publication_that_changes_too_often_is_a_failure(
    sandbox: Sandbox, client: Client, folder: Path
) -> None:
    """After three restarts; the others are done."""
    company = generate(99, series=40, publications=6)
    sandbox.publish(only(company, 0))
    # The first catalogue is not pinned.
    sandbox.inject(Switch(operation="query", nth=1, publication=only(company, 1)))
    for at in range(2, 5):
        sandbox.inject(Switch(operation="catalogue", nth=at, publication=only(company, at)))
    report = await extract(client, [company.entity_id], Select(), FiscalRange(), to=folder)
    (failed,) = report.failed
    assert failed.failure is not None
    assert (failed.failure.error, failed.failure.code) == ("DatasetChangedError", "dataset_changed")
    assert failed.requests == 8
    assert len((await extract(client, [company.entity_id], Select(), FiscalRange(), to=folder)).done) == 1


async def test_a_refused_token_stops_the_run_and_keeps_what_is_done(
    sandbox: Sandbox, client: Client, folder: Path
) -> None:
    """A token that ends half way: what was done is done, the rest is left."""
    await extract(client, IDS[:2], Select(), Annual(), to=folder)
    async with Client(sandbox.base_url, "no-token") as refused:
        report = await extract(refused, IDS, Select(), Annual(), to=folder)
    assert isinstance(report.stopped, AuthenticationError)
    assert len(report.left) == len(IDS)
    assert len((await extract(client, IDS, Select(), Annual(), to=folder)).unchanged) == 2


@pytest.mark.virtual
async def test_passing_failures_are_not_seen(tmp_path: Path) -> None:
    """Retries are the client's; the report counts their requests."""
    async with (
        Sandbox(*FIRST, faults=[Status(status=503, share=0.2, seed=1)]) as sandbox,
        Client(sandbox.base_url, sandbox.token, retry=Retry(attempts=50)) as client,
    ):
        report = await extract(client, IDS, Select(), Annual(), to=tmp_path / "night")
    assert len(report.done) == len(IDS)
    assert report.requests == client.stats().requests > 2 * len(IDS)
    assert report.waits > 0


async def test_a_token_that_the_service_echoes_reaches_no_file_and_no_report(
    sandbox: Sandbox, client: Client, folder: Path
) -> None:
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


async def test_an_account_without_access_to_some_entities_gets_the_others(
    sandbox: Sandbox, folder: Path
) -> None:
    """Each entity's answer is its own."""
    sandbox.put_account(Account("some", entities=IDS[:2]))
    async with Client(sandbox.base_url, sandbox.issue_token("some")) as client:
        report = await extract(client, IDS, Select(), Annual(), to=folder)
    assert [each.state for each in report.entities] == ["done"] * 2 + ["failed"] * 4


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"entity_ids": [""]}, "entity_id"),
        ({"entity_ids": []}, "entity_ids"),
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
        ({"to": "a\0b"}, "to: '.*a.x00b' is not a path"),
        ({"to": os.fsdecode(b"n\xe9")}, "to: '.*n.udce9' is not a path in UTF-8"),
    ],
)
async def test_a_wrong_argument_is_refused_before_anything_happens(
    sandbox: Sandbox, client: Client, folder: Path, options: dict[str, Any], named: str
) -> None:
    """One error names it; no request is spent and no folder made."""
    right: dict[str, Any] = {"client": client, "entity_ids": IDS, "select": Select(), "periods": Annual()}
    with pytest.raises(SelectionError, match=named):
        await extract(**({"to": folder} | right | options))
    assert (sandbox.log, names(folder.parent)) == ([], [])


@pytest.mark.parametrize("limit", [0, 6000])
async def test_a_disk_that_takes_no_more_ends_the_run_and_spoils_nothing(
    sandbox: Sandbox, client: Client, folder: Path, limit: int
) -> None:
    """The error names the file, and a later run continues."""
    with processes(1) as executor:
        arguments = (sandbox.base_url, sandbox.token, str(folder), IDS)
        running = executor.submit(on_a_full_disk, limit, *arguments)
        code, file = await asyncio.wrap_future(running)
    assert code in {"EFBIG", "EIO", "ENOSPC"}
    assert file.startswith(str(folder.parent))
    whole = names(folder)
    report = await extract(client, IDS, Select(), Annual(), to=folder)
    assert len(report.unchanged) <= len(whole)
    assert rows(folder) == annual(*FIRST)
    assert not list((folder.parent / "_night.journal").glob("*.part"))


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


async def test_a_read_only_folder_is_one_clear_error(
    sandbox: Sandbox, client: Client, folder: Path, read_only: Path
) -> None:
    """A read-only folder is one error that names the file, before a request is spent."""
    with pytest.raises(PermissionError, match=r"/_?night(\.journal)?/"):
        await extract(client, IDS, Select(), Annual(), to=read_only)
    assert sandbox.log == []
