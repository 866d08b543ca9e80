"""The site of the documents (`nox -s docs`): everything public has an entry, and each page is linked."""

import re
import types
from pathlib import Path

import asyncfin
import asyncfin.events
import asyncfin.sandbox
import asyncfin.telemetry
import asyncfin.typing
import asyncfin.web

DOCS = Path(__file__).parents[1] / "docs"
MODULES = (asyncfin, asyncfin.events, asyncfin.sandbox, asyncfin.telemetry, asyncfin.typing, asyncfin.web)
# It has an entry elsewhere: this is the same class by another name.
ALSO = {"asyncfin.typing.Observer"}


def public_names(module: types.ModuleType) -> set[str]:
    """Return the names that a module exports; without a list of them, those that it defines."""
    defined = [name for name, value in vars(module).items() if _is_of(module, value)]
    names = getattr(module, "__all__", defined)
    return {f"{module.__name__}.{name}" for name in names if not name.startswith("_")}


def _is_of(module: types.ModuleType, value: object) -> bool:
    return isinstance(value, (type, types.FunctionType)) and value.__module__ == module.__name__


def test_public_names_are_in_the_reference() -> None:
    """Each name that can be imported is on one page of the reference."""
    text = "\n".join(page.read_text() for page in sorted((DOCS / "reference").glob("*.md")))
    entries = re.findall(r"^\.\. (?:auto\w+|py:type):: (\S+)$", text, re.MULTILINE)
    assert len(entries) == len(set(entries))
    public = set().union(*map(public_names, MODULES)) - ALSO
    assert sorted(public - set(entries)) == []


def test_documented_errors_are_the_library_s() -> None:
    """Each below the class that catches it."""
    text = (DOCS / "reference" / "errors.md").read_text().partition("The tree:")[2].split("```")[1]
    path, shown = list[str](), set[tuple[str, str]]()
    for indent, name in re.findall(r"^([^\w\n]*)(\w+Error)", text, re.MULTILINE):
        path[len(indent) // 4 :] = [name]
        shown.add((name, path[-2] if len(path) > 1 else "Exception"))
    public = [getattr(asyncfin, name) for name in asyncfin.__all__]
    parents = {
        each.__name__: next(base.__name__ for base in each.__mro__[1:] if not base.__name__.startswith("_"))
        for each in public
        if isinstance(each, type) and issubclass(each, asyncfin.AsyncfinError)
    }
    assert shown == set(parents.items())


def test_pages_are_in_the_contents() -> None:
    """A page that no list names cannot be found."""
    named = "\n".join((DOCS / name).read_text() for name in ("index.md", "reference.md"))
    found = re.findall(r"<([\w/-]+)>$|^(reference/\w+)$", named, re.MULTILINE)
    listed = {one or other for one, other in found}
    pages = {
        str(path.relative_to(DOCS).with_suffix(""))
        for pattern in ("*.md", "*.ipynb")
        for path in DOCS.rglob(pattern)
        if not {"_build", "_generated"} & set(path.parts)
    }
    assert sorted(pages - {"index"} - listed) == []


def test_readme_links_to_files_of_repository() -> None:
    """It is read in the repository as well as in the site, so its links are paths of files."""
    root = DOCS.parent
    for text in (root / "README.md", root / "CONTRIBUTING.md"):
        links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text.read_text())
        assert [link for link in links if not (root / link).is_file()] == []
