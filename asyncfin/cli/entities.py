"""Entities on the command line: ids, or names that a CSV file gives to ids
(docs/cli.md).
"""

import csv
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from attrs import field, frozen
from cyclopts import Parameter

from asyncfin.checks import check_entity_id
from asyncfin.cli.exits import UsageError, prefix_errors
from asyncfin.cli.options import entity_group, opened
from asyncfin.errors import AsyncfinError, printable
from asyncfin.names import AS_IT_IS, Names as KnownNames, names_of, read_rows
from asyncfin.words import listed

COLUMNS = ("id", "name", "aliases")
_ADVICE = (
    "give a CSV file that begins with the line id,name,aliases (`asyncfin names` "
    "writes one)"
)
_ID = re.compile(r"O-\w{32}", re.ASCII)
_FILE = re.compile(r"\.(csv|json|txt|parquet|xlsx|png|pdf|svg)$")
_FEW = 10


@Parameter(name="*", group=entity_group)
@frozen(kw_only=True)
class Names:
    """The option of the file of names, and the names in it."""

    names: Annotated[
        Path | None,
        Parameter(
            help="A CSV file of names for entity ids: id, name, aliases (separated by "
            "|).",
            env_var="ASYNCFIN_NAMES",
        ),
    ] = None
    _known: KnownNames = field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        # Read here and not in the event loop, where Ctrl-C would not end a wait for a
        # pipe. An empty variable, which is Path(""), counts as unset.
        self._keep([] if self.names in (None, Path()) else list(_rows(self.names)))

    def _keep(self, rows: list[tuple[str, list[str]]]) -> None:
        # The class is frozen, so that it can be the default of a parameter.
        object.__setattr__(self, "_known", KnownNames(rows))

    def entity_id(self, text: str, where: str = "") -> str:
        """Return the entity id for a name or an id; errors begin with `where`.

        Raises:
            UsageError: the text is neither an id nor a name, or it is the name of
                several entities.
        """
        if self._known.matching(text):
            with prefix_errors(where.removesuffix(": ") or "entity"):
                check_entity_id(entity_id := self._known.id(text))
            return entity_id
        raise UsageError(f"{where}{self._complaint(text)}")

    def check_known(self, texts: Iterable[str]) -> None:
        """Raise UsageError if several texts are unknown to the file: one error names
        all of them.
        """
        unknown = [each for each in texts if not self._known.matching(each)]
        if len(unknown) > 1 and self._known:
            near = ", ".join(map(self._known.near, unknown))
            raise UsageError(
                f"{self.names} does not have the names {near}; these are not entity "
                "ids either"
            )

    def listed_id(self, text: str, where: str) -> str:
        """Return the entity id for a line of a file: a name, or an id of whatever
        form.
        """
        found = self._known.matching(text)
        with prefix_errors(where):
            check_entity_id(entity_id := found[0] if len(found) == 1 else text)
        return entity_id

    def _complaint(self, text: str) -> str:
        """Return what to write in place of a word that is neither an id nor a name."""
        # Meant as an id, and mistyped: names would only distract.
        if text.startswith("O-"):
            return (
                f"entity_id must be 'O-' followed by 32 characters, not {text!r}"
                f" (write {AS_IT_IS}{text} to send it as it is)"
            )
        if ending := _FILE.search(text):
            option = "--plot" if ending[0] in (".png", ".pdf", ".svg") else ">"
            return (
                f"{text!r} looks like a file, not an entity: to write it, {option} "
                f"{text}"
                "; commands that read entity ids from a file, such as extract, take "
                f"--ids {text}"
            )
        if not self._known:
            if self.names not in (None, Path()):
                return f"{self.names} contains no names; {text!r} is not an entity id"
            return (
                f"{text!r} is not an entity id (O- and 32 characters): write the id, "
                f"or {AS_IT_IS}{text}"
                " to send it as it is; names are given in a file, which `asyncfin "
                "names` writes: --names FILE"
                " or ASYNCFIN_NAMES"
            )
        known = self._known.near(text)
        if not self._known.close(text):
            known += f"; it has {listed([*map(printable, self._known.values())], _FEW)}"
        return (
            f"{self.names} does not have the name {known}; {text!r} is not an entity id"
        )

    def is_close(self, text: str) -> bool:
        """Return whether a word comes close to a name."""
        return bool(self._known.close(text))

    def offered(self, texts: Iterable[str], ids: Path | None) -> dict[str, str]:
        """Return the entities that arguments and a file of ids name, or else all that
        have a name.

        The values are their names, "" where none is known.
        """
        asked = self._asked(texts, ids) or self._known
        return {entity_id: self._known.get(entity_id, "") for entity_id in asked}

    def given(self, texts: Iterable[str], ids: Path | None) -> list[str]:
        """Return the entities that arguments and a file of ids name: at least one."""
        if found := self._asked(texts, ids):
            return found
        raise UsageError(
            "no entity is given: give entity ids, or a file of them as --ids FILE"
        )

    def _asked(self, texts: Iterable[str], ids: Path | None) -> list[str]:
        given = list(texts)
        self.check_known(given)
        return [self.entity_id(each) for each in given] + (
            ids_of_file(ids, self) if ids else []
        )

    def add_names(self, text: str) -> str:
        """Return a text with names added to the entity ids in it."""
        return _ID.sub(lambda found: self.named(found[0]), text)

    def named(self, entity_id: str) -> str:
        """Return an entity id, preceded by its name if it has one."""
        name = self._known.get(entity_id)
        return entity_id if name is None else f"{name} ({entity_id})"

    @contextmanager
    def annotate(self) -> Iterator[None]:
        """Add the entity's name as a note to errors raised within; `exits.exit_line`
        prints notes.
        """
        try:
            yield
        except AsyncfinError as error:
            if (name := self._known.get(error.entity_id or "")) is not None:
                error.add_note(name)
            raise


@Parameter(name="*", group=entity_group)
@frozen(kw_only=True)
class OptionalNames(Names):
    """Names for the command that writes them: a file that can't be read is an error
    only if it is needed.
    """

    _refused: UsageError | None = field(init=False, repr=False, eq=False, default=None)

    def __attrs_post_init__(self) -> None:
        try:
            super().__attrs_post_init__()
        except UsageError as error:
            self._keep([])
            object.__setattr__(self, "_refused", error)

    def entity_id(self, text: str, where: str = "") -> str:
        try:
            return super().entity_id(text, where)
        except UsageError:
            if self._refused is not None:
                raise self._refused from None
            raise


def _rows(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the id and the names of each line of a file."""
    for row in read_table(path, f"--names {path}")[1]:
        yield row["id"], names_of(row)


def read_table(path: Path, what: str) -> tuple[list[str], list[dict[str, str]]]:
    """Return the columns of a file of names and its rows; neither, if it is empty.

    Raises:
        UsageError: it can't be read, does not have the columns, or contains other
            things than ids. The message begins with `what`.
    """
    with opened(path, what, _ADVICE) as file:
        try:
            heads, rows = read_rows(file)
            table = list(rows)
        except KeyError:
            raise UsageError(
                f"{what} does not have the columns id and name: {_ADVICE}"
            ) from None
    for line, row in enumerate(table, 2):
        with prefix_errors(f"{what}, line {line}"):
            check_entity_id(row["id"])
    return heads, table


def ids_of_file(path: Path, names: Names) -> list[str]:
    """Return the entity ids of a file: ids or names, one per line, or a file of names;
    # begins a comment.
    """
    what = f"--ids {path}"
    with opened(path, what, "give a file of entity ids, one per line") as file:
        lines = list(file)
        heads = (
            [head.strip().casefold() for head in lines[0].split(",")] if lines else []
        )
        if {"id", "name"} <= set(heads):  # as `asyncfin names` writes it
            rows = csv.reader(lines)
            place = heads.index("id")
            texts = [
                (rows.line_num, row[place].strip()) for row in rows if len(row) > place
            ][1:]
        else:
            texts = [
                (number, line.partition("#")[0].strip())
                for number, line in enumerate(lines, 1)
            ]
    found = [
        names.listed_id(text, f"{what}, line {number}")
        for number, text in texts
        if text
    ]
    if not found:
        raise UsageError(f"{what} contains no entity ids (one per line)")
    return found
