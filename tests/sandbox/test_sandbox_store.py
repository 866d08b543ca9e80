"""What the store keeps of publications: one for each entity, whole, and its content under its id."""

import sqlite3
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from asyncfin.sandbox import Dialect, Publication, SandboxError
from asyncfin.sandbox.store import Store, _Bounded

from .conftest import ENTITY, FIRST, SECOND, VALUES, Desk, value
from .test_sandbox_pages import numbers

OTHER = "O-" + "2" * 32


@pytest.fixture
def edited(publication: Publication) -> Publication:
    """The publication with one number changed, under the same id."""
    return evolve(publication, values={**VALUES, "A-profit": [(2, value(-1), None)]})


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "service.db")


@pytest.fixture
def reopened(file: str) -> Iterator[Any]:
    """Opens the store file again, after closing the store that was open."""
    stores: list[Store] = []

    def reopen() -> Store:
        for store in stores:
            store.close()
        stores.append(Store(file))
        return stores[-1]

    yield reopen
    for store in stores:
        store.close()


def test_other_content_under_same_id(desk: Desk, edited: Publication) -> None:
    """Spec 9.2: an id names one publication; to ignore the edit would serve the old numbers."""
    with pytest.raises(SandboxError, match=f"{FIRST}.*new dataset_id"):
        desk.store.publish(edited)
    assert numbers(desk.query(metric_ids=["profit"])[1])["A-profit"] == {(2023, 12, 12): 0}
    desk.store.publish(evolve(edited, dataset_id=SECOND))
    assert numbers(desk.query(metric_ids=["profit"])[1])["A-profit"] == {(2023, 12, 12): -1}


def test_other_content_after_a_restart(reopened: Any, publication: Publication, edited: Publication) -> None:
    """The file keeps what the id stood for; the same content again changes nothing."""
    reopened().publish(publication)
    store = reopened()
    number = store.current(ENTITY).number
    store.publish(evolve(publication, values={name: tuple(rows) for name, rows in VALUES.items()}))
    assert store.current(ENTITY).number == number
    with pytest.raises(SandboxError, match="new dataset_id"):
        store.publish(edited)


def test_new_pages_have_nothing_old(desk: Desk, edited: Publication) -> None:
    """Pieces of the last pages are kept by the number of their publication, which SQLite gives again."""
    before = desk.query(metric_ids=["profit"])
    assert desk.query(metric_ids=["profit"])[1] == before[1]
    number = desk.store.current(ENTITY).number  # type: ignore[union-attr]
    desk.store.publish(evolve(edited, dataset_id=SECOND))
    assert desk.store.current(ENTITY).number == number  # type: ignore[union-attr]
    assert numbers(desk.query(metric_ids=["profit"])[1])["A-profit"] == {(2023, 12, 12): -1}


def test_pages_after_a_rollback(publication: Publication, edited: Publication) -> None:
    """Though it was read within the transaction, and its numbers are given again."""

    def read(store: Store) -> list[bytes]:
        number = store.current(ENTITY).number  # type: ignore[union-attr]
        found = store.selection(number, ["profit"], ['[["company","all"]]'], None, "original").matches
        return [each.cells for each in store.series(number, [match.series for match in found], "original")]

    store, rolled_back = Store(), list[bytes]()

    def fail() -> None:
        with store.transaction():
            store.publish(publication)
            rolled_back.extend(read(store))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    store.publish(edited)
    kept = read(store)
    store.close()
    fresh = Store()
    fresh.publish(edited)
    assert kept == read(fresh) != rolled_back
    fresh.close()


@pytest.mark.parametrize("bound", [0, 3, 1_000_000])
def test_stored_pages_are_bounded(
    bound: int, desk: Desk, publication: Publication, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However little is kept, pages are those of a store that has just been opened."""
    monkeypatch.setattr("asyncfin.sandbox.store._MAX_BYTES", bound)
    monkeypatch.setattr("asyncfin.sandbox.store._MAX_MATCHES", bound)
    bounded = _Bounded[bytes](bound, len)
    for at in range(20):
        bounded.put(1, at, b"12")
        bounded.put(2, at, b"1")
    assert sum(len(bounded.get(*each) or b"") for each in product((1, 2), range(20))) <= bound
    other = Desk(publication)
    for _ in range(2):
        for metrics in (["profit"], ["sales"], ["profit", "sales"]):
            assert other.query(metric_ids=metrics) == desk.query(metric_ids=metrics)
    other.store.close()


def test_of_transaction_that_fails_nothing_stays(
    desk: Desk, publication: Publication, later: Publication
) -> None:
    """What a failed transaction has published is gone from the store's memory and its file."""
    desk.dialect = Dialect(metadata_lag=1)

    def publish_all(*publications: Publication) -> None:
        with desk.store.transaction():
            for each in publications:
                desk.store.publish(each)

    with pytest.raises(SandboxError, match="other content"):
        publish_all(evolve(publication, entity_id=OTHER), later, evolve(later, name="Other"))
    assert desk.store.entities() == (ENTITY,)
    assert desk.query(expected_dataset_id=FIRST)[0] == 200
    desk.store.publish(later)
    assert [desk.dataset()[1]["dataset_id"] for _ in range(2)] == [FIRST, SECOND]


def test_store_of_another_version_is_rejected(file: str) -> None:
    """A store of another version, or of something else, is named in the error and left alone."""
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE publication (number INTEGER PRIMARY KEY, dataset_id TEXT)")
    with pytest.raises(SandboxError, match=r"service\.db.*new file"):
        Store(file)
    tables = database.execute("SELECT name FROM sqlite_master").fetchall()
    database.close()
    assert tables == [("publication",)]
