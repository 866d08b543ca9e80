"""The names of series in tables and charts: what distinguishes them, and what they
share.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from attrs import frozen

from asyncfin.errors import shorten
from asyncfin.table.grid import Grid
from asyncfin.table.rows import Row
from asyncfin.words import entity_names

# How much of a label is shown.
_LONGEST = 1_000
# What names that are alike get, one after the other.
_IDS = {
    "metric": "metric_id",
    "group id": "reporting_group_id",
    "series id": "series_id",
}


@frozen
class SeriesNames:
    """The names of series.

    Attributes:
        shared: the texts that all series have in common, by column.
        heads: the titles of the columns in which they differ; at least one column.
        texts: the texts of each series in these columns.
    """

    shared: Mapping[str, str]
    heads: tuple[str, ...]
    texts: Mapping[Row, tuple[str, ...]]

    @property
    def heading(self) -> str:
        """What all series share, and what their numbers are divided by: the label, and
        the scopes.

        The scopes of the whole entity go without saying; those of a part would be taken
        for it.
        """
        texts = []
        if "series" not in self.heads:
            texts.append(self.shared.get("series", ""))
        if not all(row.series.is_consolidated for row in self.texts):
            texts.append(self.shared.get("scopes", ""))
        texts = [shorten(text, _LONGEST) for text in texts]
        units = dict.fromkeys(row.unit for row in self.texts if row.unit)
        return join_texts([*texts, *(f"in {unit}" for unit in units)])

    def share(self, rows: Iterable[Row]) -> dict[str, str]:
        """Return the texts that some of the rows share, by column; at least one column
        is left.
        """
        columns = zip(*(self.texts[row] for row in rows), strict=True)
        shared = {
            head: texts[0]
            for head, texts in zip(self.heads, columns, strict=True)
            if len(set(texts)) == 1
        }
        if len(shared) == len(self.heads):
            del shared["series" if "series" in shared else self.heads[0]]
        return shared

    def name(self, row: Row, heads: Collection[str]) -> list[str]:
        """Return the texts of a row in some of the columns. The last shows whether it
        is divided.
        """
        pairs = zip(self.heads, self.texts[row], strict=True)
        texts = [text for head, text in pairs if head in heads]
        last = max(place for place, text in enumerate(texts) if text or not place)
        texts[last] += row.scale.suffix
        return texts


def join_texts(texts: Iterable[str]) -> str:
    """Join the texts of a series to one name."""
    return ", ".join(filter(None, texts))


def name_rows(
    rows: Sequence[Row],
    *,
    group_names: bool = False,
    entities: bool = False,
    grids: Sequence[Grid] = (),
    reserved: Collection[str] = (),
) -> SeriesNames:
    """Name series by those of entity, publication, version, label, scopes and group
    that differ.

    Series whose names are alike have their ids too.

    Args:
        group_names: name the reporting groups. False: their ids, which queries and the
            command line take.
        entities: name the entity, also if all series share it.
        grids: panels that are shown, with series or not: their entities are
            distinguished too.
        reserved: names that no series may have.
    """
    catalogues = [grid.catalogue for grid in (*grids, *(row.grid for row in rows))]
    names = entity_names(catalogues)
    columns: dict[str, list[str]] = {
        "entity": [names[row.entity_id] for row in rows],
        "publication": _name_publications(rows),
        "values": [row.grid.value_version for row in rows],
        "series": [row.label for row in rows],
        "scopes": [row.grid.path_names(row.series) for row in rows],
        "group": [_name_group(row, group_names) for row in rows],
    }
    shared = {
        head: texts[0]
        for head, texts in columns.items()
        if len(set(texts)) == 1 and not (entities and head == "entity")
    }
    differing = {head: texts for head, texts in columns.items() if head not in shared}
    # A single series needs a name in its row too.
    columns = differing or {"series": columns["series"]}
    _add_ids(columns, rows, reserved)
    texts = zip(*columns.values(), strict=True)
    return SeriesNames(shared, tuple(columns), dict(zip(rows, texts, strict=True)))


def _add_ids(
    columns: dict[str, list[str]], rows: Sequence[Row], reserved: Collection[str]
) -> None:
    """Add columns of ids for the series whose names are alike, as far as they
    distinguish these.
    """
    for head, field in _IDS.items():
        counts = Counter([*_join_columns(columns), *reserved])
        ids = [
            getattr(row.series, field) if counts[name] > 1 else ""
            for name, row in zip(_join_columns(columns), rows, strict=True)
        ]
        longer = columns | {head: ids}
        if len(set(_join_columns(longer))) > len(set(_join_columns(columns))) or (
            any(ids) and head == "series id"
        ):
            columns[head] = ids


def _join_columns(columns: Mapping[str, Sequence[str]]) -> list[str]:
    return [join_texts(texts) for texts in zip(*columns.values(), strict=True)]


def _name_group(row: Row, is_name: bool) -> str:
    group_id = row.series.reporting_group_id
    return row.grid.catalogue.by_group[group_id].name if is_name else group_id


def _name_publications(rows: Sequence[Row]) -> list[str]:
    """Return the ids of the publications where an entity has more than one, else empty
    texts.
    """
    catalogues = [row.grid.catalogue for row in rows]
    pairs = {(catalogue.entity_id, catalogue.dataset_id) for catalogue in catalogues}
    if len(pairs) == len({entity_id for entity_id, _ in pairs}):
        return [""] * len(rows)
    return [catalogue.dataset_id for catalogue in catalogues]
