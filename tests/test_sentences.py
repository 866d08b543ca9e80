"""No face reads a sentence of another room: what a message means is an attribute of the error."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import asyncfin

PACKAGE = Path(asyncfin.__file__).parent
FACES = ("cli", "web", "mcp")
# Methods of texts, and functions of `re`, that look into a text.
_READING = {
    *("replace", "partition", "rpartition", "split", "rsplit", "startswith", "endswith", "find", "index"),
    *("removeprefix", "removesuffix", "count", "compile", "match", "fullmatch", "search", "sub", "findall"),
}


def texts(node: ast.AST) -> Iterator[str]:
    """Yield the texts that are written in a piece of code."""
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value


def read_texts(tree: ast.AST) -> Iterator[str]:
    """Yield the literals with a blank that code looks for in a text."""
    for node in ast.walk(tree):
        found: list[ast.AST] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _READING:
            found = list(node.args[:1])
        elif isinstance(node, ast.Compare) and any(isinstance(op, (ast.In, ast.NotIn)) for op in node.ops):
            found = [node.left] if isinstance(node.left, ast.Constant) else []
        yield from (text for each in found for text in texts(each) if " " in text.strip())


def written_elsewhere(room: str) -> str:
    """Return all texts of the other rooms."""
    paths = (each for each in PACKAGE.rglob("*.py") if each.relative_to(PACKAGE).parts[0] != room)
    return "\n".join(text for path in paths for text in texts(ast.parse(path.read_text())))


@pytest.mark.parametrize("room", FACES)
def test_no_face_looks_for_a_sentence_of_another_room(room: str) -> None:
    """A reworded message would change in silence what a command or page says."""
    others = written_elsewhere(room)
    found = {
        (path.name, text)
        for path in (PACKAGE / room).rglob("*.py")
        for text in read_texts(ast.parse(path.read_text()))
        if text.strip() in others
    }
    assert found == set()


def test_what_looks_for_a_sentence_is_found() -> None:
    """The test above can fail."""
    code = """
said = str(error).replace("write FiscalRange() to select", "leave it out")
pattern = re.compile(r"write Exact (.*)")
if ": a sentence" in said or said.startswith("no value"): pass
plain = said.replace("_", " ").split(",")
"""
    assert set(read_texts(ast.parse(code))) == {
        "write FiscalRange() to select",
        "write Exact (.*)",
        ": a sentence",
        "no value",
    }
