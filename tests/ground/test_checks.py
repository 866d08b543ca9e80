"""Argument checks: each names the argument, what it must be and what was given."""

import math
import os
from pathlib import Path

import pytest
from attrs import field, frozen

from asyncfin import FileBucket, FileCache, checks, read_names, token_file
from asyncfin.errors import ArgumentError, SelectionError
from asyncfin.sandbox import BrokenDatasetError, load


async def ask() -> str:
    return "token"


class AsyncCall:
    async def __call__(self) -> None: ...


REFUSED = [
    (checks.instance_of(int), "1", "an int"),
    (checks.instance_of(bytes, str), 1, "a bytes or str"),
    (checks.one_of("long", "wide"), "tall", "'long' or 'wide'"),
    (checks.one_of("long", "wide"), ["long"], "'long' or 'wide'"),
    (checks.above(0), 0, "a finite number above 0"),
    (checks.above(0), True, "a finite number above 0"),
    (checks.at_least(1), 0.5, "a finite number, at least 1"),
    (checks.seconds, -1, "a finite number of seconds, at least 0"),
    (checks.positive_seconds, math.nan, "a finite number of seconds above 0"),
    (checks.positive_seconds, math.inf, "a finite number of seconds above 0"),
    (checks.positive_int, 1.0, "a whole number, at least 1"),
    (checks.positive_int, True, "a whole number, at least 1"),
    (checks.whole_number(1, 100), 101, "a whole number from 1 to 100"),
    (checks.flag, 1, "a bool"),
    (checks.text(), "", "a text that is not empty"),
    (checks.text("the id of a table"), 3, "the id of a table"),
    (checks.plain_callable, ask, "a function that is not async, or the like"),
    (checks.plain_callable, AsyncCall(), "a function that is not async, or the like"),
    (checks.plain_callable, 5, "a function that is not async, or the like"),
    (checks.above(0).optional(), 0, "a finite number above 0 or None"),
    (checks.above(0).optional("to learn it"), 0, "a finite number above 0, or None to learn it"),
]


@pytest.mark.parametrize(("check", "value", "wanted"), REFUSED)
def test_wrong_argument_is_named(check: checks.Check, value: object, wanted: str) -> None:
    """One error, of the class for arguments or for questions."""
    with pytest.raises(ArgumentError) as caught:
        check("the_name", value)
    assert str(caught.value) == f"the_name must be {wanted}, not {value!r}"
    with pytest.raises(SelectionError) as caught:
        check.as_selection_error()("the_name", value)
    assert type(caught.value) is SelectionError


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (checks.instance_of(bytes, str), "a"),
        (checks.one_of("long", "wide"), "wide"),
        (checks.above(0), 10**400),
        (checks.seconds, 0),
        (checks.positive_int, 10**30),
        (checks.whole_number(1, 100), 100),
        (checks.text(), " "),
        (checks.plain_callable, print),
        (checks.above(0).optional(), None),
    ],
)
def test_a_right_argument_is_returned(check: checks.Check, value: object) -> None:
    """A right argument is returned, so that it can be checked where it is assigned."""
    assert check("name", value) is value


def test_check_validates_field_of_class() -> None:
    """The error names the field."""

    @frozen
    class Settings:
        size: int = field(validator=checks.positive_int.field)

    assert Settings(3).size == 3
    with pytest.raises(ArgumentError, match=r"^size must be a whole number, at least 1, not 0$"):
        Settings(0)


@pytest.mark.parametrize("path", ["C:/names.csv", "c:/a b/names.csv", "names.csv", "/tmp/a:b"])
def test_drive_belongs_to_local_path(path: str) -> None:
    """Python takes both slashes on Windows."""
    assert checks.local_path("path", "file", path, "download it first") == path


@pytest.mark.parametrize("path", ["s3://bucket/x", "file:/x", "https://host/x", "C:/s3://bucket/x"])
def test_url_is_no_local_path(path: str) -> None:
    """It can contain a password. pathlib makes one slash of two."""
    wrong = r"^path must be the path of a file on this machine, not a URL; download it first$"
    for each in (path, path.replace("//", "/")):
        with pytest.raises(ArgumentError, match=wrong):
            checks.local_path("path", "file", each, "download it first")


async def test_tilde_is_home_folder_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of tokens, names, buckets, caches and datasets; no folder named ~ appears."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "names.csv").write_text("id,name\nO-1,One\n")
    (tmp_path / "one.json").write_text("{}")
    assert await token_file("~/token")() == "secret"
    assert len(read_names("~/names.csv")) == 1
    bucket, cache = FileBucket("~/bucket"), FileCache("~/cache", account="me")
    await bucket.acquire()
    await bucket.aclose()
    await cache.clear()
    await cache.aclose()
    with pytest.raises(BrokenDatasetError, match="format"):
        load("~/one.json")
    assert {"bucket", "cache"} <= {*os.listdir(tmp_path)}
    assert "~" not in os.listdir(tmp_path)
