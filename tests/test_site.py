"""The site of the documents (`nox -s docs`): nothing public lacks an entry, and no page stands apart."""

import re
from pathlib import Path

import asyncfin
import asyncfin.sandbox
import asyncfin.typing
import asyncfin.web

DOCS = Path(__file__).parents[1] / "docs"


def test_every_public_name_has_an_entry_in_the_reference() -> None:
    """Those of the package by themselves, those of the sandbox by its list of names."""
    reference = (DOCS / "reference.md").read_text()
    entries = set(re.findall(r"^\.\. auto\w+:: (\S+)$", reference, re.MULTILINE))
    public = {f"asyncfin.{name}" for name in asyncfin.__all__ if not name.startswith("_")}
    public |= {f"asyncfin.web.{name}" for name in asyncfin.web.__all__}
    public |= {f"asyncfin.typing.{name}" for name in asyncfin.typing.__all__ if name != "Observer"}
    assert public <= entries
    assert "asyncfin.sandbox" in entries


def test_every_page_is_in_the_table_of_contents() -> None:
    """A page that no list names can be found by nobody."""
    listed = set(re.findall(r"<([\w/-]+)>$|^(how/\w+)$", (DOCS / "index.md").read_text(), re.MULTILINE))
    names = {first or second for first, second in listed}
    pages = {
        str(path.relative_to(DOCS).with_suffix(""))
        for path in DOCS.rglob("*.md")
        if not {"_build", "_generated"} & set(path.parts)
    }
    assert pages - {"index"} <= names
