"""Entities on the command line: ids, or names that a CSV file gives to ids (docs/cli.md)."""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from attrs import field, frozen
from cyclopts import Parameter

from asyncfin.cli.exits import UsageError, prefix_errors
from asyncfin.cli.options import entity_group, opened
from asyncfin.errors import AsyncfinError, printable
from asyncfin.model.suggest import quoted, suggest
from asyncfin.model.words import listed
from asyncfin.wire.protocol import check_entity_id, has_spec_form

COLUMNS = ("id", "name", "aliases")
# Aliases are one field of the file.
_BETWEEN = "|"
_ADVICE = "give a CSV file that begins with the line id,name,aliases (`asyncfin names` writes one)"
_ID = re.compile(r"O-\w{32}", re.ASCII)
_AS_IT_IS = "id:"  # before an id of another form, so that a typing mistake costs no request
_FILE = re.compile(r"\.(csv|json|txt|parquet|xlsx|png|pdf|svg)$")
_FEW = 10


@Parameter(name="*", group=entity_group)
@frozen(kw_only=True)
class Names:
    """The names of entity ids."""

    names: Annotated[
        Path | None,
        Parameter(
            help="A CSV file of names for entity ids: id, name, aliases (separated by |).",
            env_var="ASYNCFIN_NAMES",
        ),
    ] = None
    _by_id: Mapping[str, str] = field(init=False, repr=False, eq=False)
    _ids: Mapping[str, tuple[str, ...]] = field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        # Read here and not in the event loop, where Ctrl-C would not end a wait for a pipe.
        # An empty variable, which is Path(""), counts as unset.
        self._keep([] if self.names in (None, Path()) else list(_rows(self.names)))

    def _keep(self, rows: list[tuple[str, list[str]]]) -> None:
        # Two entities may share a name, which is an error only where it is used.
        ids: dict[str, dict[str, None]] = {}
        for entity_id, names in rows:
            for name in names:
                ids.setdefault(folded(name), {})[entity_id] = None
        # The class is frozen, so that it can be the default of a parameter.
        object.__setattr__(self, "_by_id", {entity_id: names[0] for entity_id, names in rows})
        object.__setattr__(self, "_ids", {name: tuple(found) for name, found in ids.items()})

    def entity_id(self, text: str, where: str = "") -> str:
        """Return the entity id for a name or an id; errors begin with `where`.

        Raises:
            UsageError: the text is neither an id nor a name, or it is the name of several entities.
        """
        # Names first: the file may give any text a meaning, even one that looks like an id.
        found = self._ids.get(folded(text), ())
        if len(found) == 1:
            return found[0]
        if found:
            raise UsageError(f"{where}{text!r} is a name of {' and of '.join(found)}: give the id")
        if text.startswith(_AS_IT_IS):
            with prefix_errors(f"{where}{text!r}"):
                check_entity_id(text.removeprefix(_AS_IT_IS))
            return text.removeprefix(_AS_IT_IS)
        if has_spec_form(text):
            return text
        raise UsageError(f"{where}{self._complaint(text)}")

    def listed_id(self, text: str, where: str) -> str:
        """Return the entity id for a line of a file: a name, or an id of whatever form."""
        if len(found := self._ids.get(folded(text), ())) == 1:
            return found[0]
        with prefix_errors(where):
            check_entity_id(text)
        return text

    def _complaint(self, text: str) -> str:
        """Return what to write in place of a word that is neither an id nor a name."""
        # Meant as an id, and mistyped: names would only distract.
        if text.startswith("O-"):
            return (
                f"entity_id must be 'O-' followed by 32 characters, not {text!r}"
                f" (write {_AS_IT_IS}{text} to send it as it is)"
            )
        if ending := _FILE.search(text):
            option = "--plot" if ending[0] in (".png", ".pdf", ".svg") else ">"
            return (
                f"{text!r} looks like a file, not an entity: to write it, {option} {text}"
                f"; commands that read entity ids from a file, such as extract, take --ids {text}"
            )
        if not self._ids:
            if self.names not in (None, Path()):
                return f"{self.names} contains no names; {text!r} is not an entity id"
            return (
                f"{text!r} is not an entity id (O- and 32 characters): write the id, or {_AS_IT_IS}{text} to"
                " send it as it is; names are given in a file, which `asyncfin names` writes: --names FILE or"
                " ASYNCFIN_NAMES"
            )
        known = quoted(text, self._ids)
        if known == repr(text):
            known += f"; it has {listed([*map(printable, self._by_id.values())], _FEW)}"
        return f"{self.names} does not have the name {known}; {text!r} is not an entity id"

    def is_close(self, text: str) -> bool:
        """Return whether a word comes close to a name."""
        return bool(suggest(text, self._ids))

    def offered(self, texts: Iterable[str], ids: Path | None) -> dict[str, str]:
        """Return the entities that arguments and a file of ids name, or else all that have a name.

        The values are their names, "" where none is known.
        """
        asked = self._asked(texts, ids) or self._by_id
        return {entity_id: self._by_id.get(entity_id, "") for entity_id in asked}

    def given(self, texts: Iterable[str], ids: Path | None) -> list[str]:
        """Return the entities that arguments and a file of ids name: at least one."""
        if found := self._asked(texts, ids):
            return found
        raise UsageError("no entity is given: give entity ids, or a file of them as --ids FILE")

    def _asked(self, texts: Iterable[str], ids: Path | None) -> list[str]:
        return [self.entity_id(each) for each in texts] + (ids_of_file(ids, self) if ids else [])

    def add_names(self, text: str) -> str:
        """Return a text with names added to the entity ids in it."""
        return _ID.sub(lambda found: self.named(found[0]), text)

    def named(self, entity_id: str) -> str:
        """Return an entity id, preceded by its name if it has one."""
        name = self._by_id.get(entity_id)
        return entity_id if name is None else f"{name} ({entity_id})"

    @contextmanager
    def annotate(self) -> Iterator[None]:
        """Add the entity's name as a note to errors raised within; `exits.exit_line` prints notes."""
        try:
            yield
        except AsyncfinError as error:
            if (name := self._by_id.get(error.entity_id or "")) is not None:
                error.add_note(name)
            raise


@Parameter(name="*", group=entity_group)
@frozen(kw_only=True)
class OptionalNames(Names):
    """Names for the command that writes them: a file that can't be read is an error only if it is needed."""

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


def folded(name: str) -> str:
    """Return a name in the form in which names are compared: case and runs of blanks do not count."""
    return " ".join(name.split()).casefold()


def _rows(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the id and the names of each line of a file."""
    for row in read_table(path, f"--names {path}")[1]:
        names = [row["name"], *row.get("aliases", "").split(_BETWEEN)]
        yield row["id"], [name.strip() for name in names if name.strip()] or [row["id"]]


def read_table(path: Path, what: str) -> tuple[list[str], list[dict[str, str]]]:
    """Return the columns of a file of names and its rows; neither, if it is empty.

    Raises:
        UsageError: it can't be read, does not have the columns, or contains other things than ids. The
            message begins with `what`.
    """
    with opened(path, what, _ADVICE) as file:
        reader = csv.DictReader(file, restval="")
        # As spreadsheets save it: with blanks and capitals, and a byte order mark (`opened` drops that).
        heads = [(head or "").strip().casefold() for head in reader.fieldnames or ()]
        reader.fieldnames = heads
        if not any(heads):
            return [], []
        if not {"id", "name"} <= set(heads):
            raise UsageError(f"{what} does not have the columns id and name: {_ADVICE}")
        rows = []
        for row in reader:
            row.pop(None, None)  # more fields than columns
            row["id"] = row["id"].strip()
            with prefix_errors(f"{what}, line {reader.line_num}"):
                check_entity_id(row["id"])
            rows.append(row)
        return heads, rows


def ids_of_file(path: Path, names: Names) -> list[str]:
    """Return the entity ids of a file: ids or names, one per line, or a file of names; # begins a comment."""
    what = f"--ids {path}"
    with opened(path, what, "give a file of entity ids, one per line") as file:
        lines = list(file)
    heads = [head.strip().casefold() for head in lines[0].split(",")] if lines else []
    if {"id", "name"} <= set(heads):  # as `asyncfin names` writes it
        rows = csv.reader(lines)
        place = heads.index("id")
        texts = [(rows.line_num, row[place].strip()) for row in rows if len(row) > place][1:]
    else:
        texts = [(number, line.partition("#")[0].strip()) for number, line in enumerate(lines, 1)]
    found = [names.listed_id(text, f"{what}, line {number}") for number, text in texts if text]
    if not found:
        raise UsageError(f"{what} contains no entity ids (one per line)")
    return found
