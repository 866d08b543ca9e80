"""Names for entity ids, from a CSV file: the service knows ids only."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Mapping

from asyncfin import checks
from asyncfin.errors import ArgumentError, SelectionError, has_id_form, printable
from asyncfin.suggest import find_alike, quote_unknown
from asyncfin.words import listed

# Aliases are one field of the file.
_BETWEEN = "|"
# Before an id of another form, so that a typing mistake costs no request.
AS_IT_IS = "id:"
# A shorter beginning of a name could mean too many.
_LEAST_BEGINNING = 3
# The share of common letters from which a name is close.
_ALIKE = 0.7
# How many entities an error names where several are meant.
_NAMED = 5


def folded(name: str) -> str:
    """Return a name in the form in which names are compared: case and runs of blanks do
    not count.
    """
    return " ".join(name.split()).casefold()


class Names(Mapping[str, str]):
    """The names of entities by their ids, in the order of the file; made by
    `read_names`.
    """

    def __init__(self, rows: Iterable[tuple[str, Iterable[str]]]) -> None:
        self._names: dict[str, str] = {}
        # Two entities may share a name, which is an error only where it is used.
        self._ids: dict[str, dict[str, None]] = {}
        for entity_id, names in rows:
            for name in names:
                self._names.setdefault(entity_id, name)
                self._ids.setdefault(folded(name), {})[entity_id] = None
            self._names.setdefault(entity_id, entity_id)

    def __getitem__(self, entity_id: str) -> str:
        return self._names[entity_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"Names of {len(self):,} entities"

    def id(self, text: str) -> str:
        """Return the entity id for a name, an alias, the beginning of a name or of a
        word in it, or an id.

        Names and aliases come first, in any case. Then ``id:WORD`` is WORD, and an id
        of the spec's form is itself, also if the file does not have it. A beginning has
        at least 3 characters, and is that of names of one entity; the beginning of a
        later word counts if no name begins so.

        Raises:
            SelectionError: it is not one of these, or it means several entities.
        """
        return self.ids((text,))[0]

    def ids(self, texts: Iterable[str]) -> tuple[str, ...]:
        """Return the entity id for each text, as `id` does, in their order.

        Raises:
            SelectionError: some of them are unknown, all of which it names with what
                comes close; or one means several entities.
        """
        checks.several("texts", texts, "names or entity ids")
        entity_ids: list[str] = []
        unknown: list[object] = []
        for text in texts:
            ids = self.matching(text) if isinstance(text, str) else ()
            if len(ids) > 1:
                entities = [f"{printable(self._names[key])} ({key})" for key in ids]
                raise SelectionError(
                    f"{checks.short_repr(text)} means {listed(entities, _NAMED)}: give "
                    "the id"
                )
            if ids:
                entity_ids.append(ids[0])
            else:
                unknown.append(text)
        if unknown:
            names = " or ".join(map(self.quote_unknown, unknown))
            raise SelectionError(f"no entity has the name {names}")
        return tuple(entity_ids)

    def matching(self, text: str) -> tuple[str, ...]:
        """Return the ids of the entities that a text may mean; none: it is unknown."""
        word = folded(text)
        if ids := self._ids.get(word):
            return tuple(ids)
        if text.startswith(AS_IT_IS):
            return (text.removeprefix(AS_IT_IS),)
        if has_id_form(text):
            return (text,)
        if len(word) < _LEAST_BEGINNING:
            return ()
        beginning = [ids for name, ids in self._ids.items() if name.startswith(word)]
        # "boeing" means THE BOEING COMPANY if no name begins with it.
        matching = beginning or [
            ids for name, ids in self._ids.items() if f" {word}" in name
        ]
        return tuple(dict.fromkeys(entity_id for ids in matching for entity_id in ids))

    def quote_unknown(self, text: object) -> str:
        """Write an unknown text for an error, with the names that come close."""
        names: dict[str, None] = {}
        for name in find_alike(folded(str(text)), self._ids, 3, _ALIKE):
            entity_id = next(iter(self._ids[name]))
            names[self._names[entity_id]] = None
        return quote_unknown(text, names)


def read_names(path: str | os.PathLike[str] | None = None) -> Names:
    """Return the names of entities in a CSV file with the columns id, name and aliases
    (separated by ``|``).

    `asyncfin names` writes such a file; aliases can be added by hand.

    Args:
        path: the file. None: that of ASYNCFIN_NAMES.

    Raises:
        ArgumentError: the file is missing, can't be read or is another one, or
            ASYNCFIN_NAMES is not set.
    """
    if path is None and not (path := os.environ.get("ASYNCFIN_NAMES")):
        raise ArgumentError(
            "path is missing, and ASYNCFIN_NAMES is not set: give a CSV file with the "
            "columns id, name"
        )
    place = checks.local_path("path", "file", path, "download it first")
    try:
        with open(place, encoding="utf-8-sig", newline="") as file:
            rows = list(read_rows(file)[1])
        if not all(row["id"] for row in rows):
            raise KeyError("id")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or "it is not a CSV file"
    except KeyError:
        reason = "the columns id and name, or an id, are missing"
    else:
        return Names((row["id"], names_of(row)) for row in rows)
    raise ArgumentError(
        f"{place} can't be read ({reason}): give a CSV file with the columns id, name, "
        "aliases"
    )


def read_rows(lines: Iterable[str]) -> tuple[list[str], Iterator[dict[str, str]]]:
    """Return the columns of a file of names and its rows; neither, if it is empty.

    KeyError: the column id or name is missing.
    """
    reader = csv.DictReader(lines, restval="")
    # As spreadsheets save it: with blanks and capitals, and a byte order mark.
    heads = [(head or "").strip().casefold() for head in reader.fieldnames or ()]
    reader.fieldnames = heads
    if not any(heads):
        return [], iter(())
    if not {"id", "name"} <= set(heads):
        raise KeyError("id, name")
    return heads, map(_clean_row, reader)


def _clean_row(row: dict[str, str]) -> dict[str, str]:
    row.pop(None, None)  # type: ignore[call-overload]  # more fields than columns
    return row | {"id": row["id"].strip()}


def names_of(row: Mapping[str, str]) -> list[str]:
    """Return the name and the aliases of a row; its id if it has none."""
    names = [row["name"], *row.get("aliases", "").split(_BETWEEN)]
    return [name.strip() for name in names if name.strip()] or [row["id"]]
