"""Names for entity ids: what a text means, and what is said of one that means nothing."""

from pathlib import Path

import pytest

from asyncfin import ArgumentError, SelectionError, read_names

ONE, TWO, THREE = ("O-" + number * 32 for number in "123")
FILE = f"""id,name,aliases
{ONE},Example Company,EX|exa
{TWO},Example Bank,EXB|EXA
{THREE},Other,
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "names.csv"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize(
    ("text", "entity_id"),
    [
        ("Example Company", ONE),
        ("  EXAMPLE   company ", ONE),
        ("ex", ONE),
        ("oth", THREE),
        ("example b", TWO),
        ("bank", TWO),
        ("compa", ONE),
        ("id:anything", "anything"),
        ("O-" + "9" * 32, "O-" + "9" * 32),
        (TWO, TWO),
    ],
)
def test_name_alias_or_id_means_entity(file: Path, text: str, entity_id: str) -> None:
    """Names and aliases come first: an alias that begins other names means its own entity."""
    assert read_names(file).id(text) == entity_id


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (
            ["Exampel Company", "nothing"],
            r"^no entity has the name 'Exampel Company' \(close: Example Company",
        ),
        (["ex", "Oter", "xyz"], r"'Oter' \(close: Other\) or 'xyz'$"),
        (["ot"], "'ot'"),
        (["O-1"], "^no entity has the name 'O-1'$"),
        (["EXA"], rf"^'EXA' means Example Company \({ONE}\), Example Bank \({TWO}\): give the id$"),
        (["examp"], "^'examp' means Example Company"),
        ([5], "'5'|5"),
        ("other", "must be an iterable of names"),
    ],
)
def test_unknown_and_ambiguous_names_are_rejected(file: Path, texts: list[str], said: str) -> None:
    """All unknown words are in it, each with what comes close."""
    with pytest.raises(SelectionError, match=said):
        read_names(file).ids(texts)


def test_file_of_environment_is_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASYNCFIN_NAMES", str(file))
    assert read_names().id("other") == THREE
    monkeypatch.delenv("ASYNCFIN_NAMES")
    with pytest.raises(ArgumentError, match="ASYNCFIN_NAMES is not set"):
        read_names()


@pytest.mark.parametrize("content", [None, b"a,b\n1,2\n", b"\xff\xfe\x00", b"id,name\n,No id\n"])
def test_another_file_is_refused(tmp_path: Path, content: bytes | None) -> None:
    """A missing one, one of other columns, one that is not text, and one with a row without an id."""
    path = tmp_path / "names.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ArgumentError, match=r"names\.csv can't be read"):
        read_names(path)


def test_spreadsheet_file_is_read(tmp_path: Path) -> None:
    """With a byte order mark, capitals and blanks in the heading, and more columns."""
    path = tmp_path / "names.csv"
    path.write_bytes(f"\ufeffID , Name,Aliases,more\r\n {ONE} ,Example,EX|,x\r\n".encode())
    assert dict(read_names(path)) == {ONE: "Example"}
    assert read_names(path).id("ex") == ONE
