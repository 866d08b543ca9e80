"""Entities on the command line: ids, or names that a CSV file gives to ids (docs/cli.md)."""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from attrs import field, frozen
from cyclopts import Parameter

from asyncfin.cli.exits import UsageError
from asyncfin.cli.options import entity_group, opened
from asyncfin.errors import AsyncfinError
from asyncfin.model.suggest import quoted
from asyncfin.wire.protocol import has_spec_form

COLUMNS = ("id", "name", "aliases")
# Aliases stand in one field of the file.
_BETWEEN = "|"
_ADVICE = "name a CSV file that begins with the line id,name,aliases (`asyncfin names` writes one)"
_ID = re.compile(r"O-\w{32}", re.ASCII)


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
        # Two entities may have one name. That is an error only if somebody asks by it.
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
        if has_spec_form(text):
            return text
        complaint = f"entity_id must be 'O-' followed by 32 characters, not {text!r}"
        # Meant as an id, and mistyped: names would only distract.
        if text.startswith("O-"):
            raise UsageError(f"{where}{complaint}")
        if self.names is None:
            raise UsageError(f"{where}{complaint}; names stand in a file: --names FILE or ASYNCFIN_NAMES")
        raise UsageError(f"{where}{self.names} has no name {quoted(text, self._ids)}, and it is not an id")

    def offered(self, texts: Iterable[str], ids: Path | None) -> dict[str, str]:
        """Return the entities that arguments and a file of ids name, or else all that have a name.

        The values are their names, "" where none is known.
        """
        asked = [self.entity_id(each) for each in texts] + (listed(ids, self) if ids else [])
        return {entity_id: self._by_id.get(entity_id, "") for entity_id in asked or self._by_id}

    def in_text(self, text: str) -> str:
        """Return a text with names added to the entity ids in it."""
        return _ID.sub(lambda found: self.named(found[0]), text)

    def named(self, entity_id: str) -> str:
        """Return an entity id, preceded by its name if it has one."""
        name = self._by_id.get(entity_id)
        return entity_id if name is None else f"{name} ({entity_id})"

    @contextmanager
    def in_errors(self) -> Iterator[None]:
        """Add the entity's name as a note to errors raised within; `exits.ending` prints notes."""
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
    with opened(path, f"--names {path}", _ADVICE) as file:
        reader = csv.DictReader(file)
        # As spreadsheets save it: with blanks and capitals, and a byte order mark (`opened` drops that).
        heads = [(head or "").strip().casefold() for head in reader.fieldnames or ()]
        reader.fieldnames = heads
        if not any(heads):
            return
        if not {"id", "name"} <= set(heads):
            raise UsageError(f"--names {path} has no columns id and name: {_ADVICE}")
        for row in reader:
            entity_id = (row["id"] or "").strip()
            if not has_spec_form(entity_id):
                raise UsageError(
                    f"--names {path}, line {reader.line_num}: entity_id must be 'O-' followed by 32"
                    f" characters, not {entity_id!r}"
                )
            names = [row["name"] or "", *(row.get("aliases") or "").split(_BETWEEN)]
            yield entity_id, [name.strip() for name in names if name.strip()] or [entity_id]


def listed(path: Path, names: Names) -> list[str]:
    """Return the entity ids of a file of ids or names, one a line; # begins a comment."""
    with opened(path, f"--ids {path}", "name a file of entity ids, one a line") as file:
        return [
            names.entity_id(text, f"--ids {path}, line {number}: ")
            for number, line in enumerate(file, 1)
            if (text := line.partition("#")[0].strip())
        ]
