"""The names of series in tables and charts: what distinguishes them, and what they
share.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter

from attrs import frozen

from asyncfin.errors import shorten
from asyncfin.table.grid import Grid
from asyncfin.table.rows import Row
from asyncfin.words import entity_names

# How much of a label is shown.
_LONGEST = 1_000
# What names that are alike get, one after the other, as far as it distinguishes them.
_IDS: Mapping[str, Callable[[Row], str]] = {
    "publication": attrgetter("grid.catalogue.dataset_id"),
    "metric": attrgetter("series.metric_id"),
    "series id": attrgetter("series.series_id"),
    "values": attrgetter("grid.value_version"),
    "entity id": attrgetter("entity_id"),
}


@frozen
class SeriesNames:
    """The names of series.

    Attributes:
        shared_texts: the texts that all series have in common, by column.
        heads: the titles of the columns in which they differ; at least one column.
        texts: the texts of each series in these columns.
    """

    shared_texts: Mapping[str, str]
    heads: tuple[str, ...]
    texts: Mapping[Row, tuple[str, ...]]

    @property
    def caption(self) -> str:
        """What all series share, and what their numbers are divided by: the label, and
        the scopes.

        The scopes of the whole entity go without saying; those of a part would be taken
        for it.
        """
        texts = []
        if "series" not in self.heads:
            texts.append(shorten(self.shared_texts.get("series", ""), _LONGEST))
        if not all(map(attrgetter("series.is_consolidated"), self.texts)):
            texts.append(shorten(self.shared_texts.get("scopes", ""), _LONGEST))
        for row in self.texts:
            if row.unit:  # all divided rows have the same
                texts.append(f"in {row.unit}")
                break
        return join_texts(texts)

    def name(self, row: Row) -> list[str]:
        """Return the texts of a row. The series, or the last text if all rows share it,
        shows where a row is not divided.
        """
        texts = list(self.texts[row])
        if "series" in self.heads:
            place = self.heads.index("series")
        else:
            places = [place for place, text in enumerate(texts) if text]
            place = max(places, default=0)
        texts[place] += row.scale.suffix
        return texts

    @property
    def joined(self) -> dict[Row, str]:
        """The name of each series as one text."""
        names = map(join_texts, self.texts.values())
        return dict(zip(self.texts, names, strict=True))


def join_texts(texts: Iterable[str]) -> str:
    """Join the texts of a series to one name."""
    return ", ".join(filter(None, texts))


def name_rows(
    rows: Sequence[Row], *, group_names: bool = False, entities: Sequence[Grid] = ()
) -> SeriesNames:
    """Name series by those of entity, version, label, scopes and group that differ.

    Series whose names are alike have their ids too.

    Args:
        group_names: name the reporting groups. False: their ids, which queries and the
            command line take.
        entities: the panels whose entities are distinguished, with series or not. If
            there are any, the entity is named also if all series share it.
    """
    grids = [*entities, *map(attrgetter("grid"), rows)]
    names = entity_names(map(attrgetter("catalogue"), grids))
    columns: dict[str, list[str]] = {}
    for row in rows:
        group = row.series.reporting_group_id
        if group_names:
            group = row.grid.catalogue.by_group[group].name
        texts_by_head = {
            "entity": names[row.entity_id],
            "values": row.grid.value_version,
            "series": row.label,
            "scopes": row.grid.join_scopes(row.series),
            "group": group,
        }
        for head, text in texts_by_head.items():
            columns.setdefault(head, []).append(text)
    shared_texts, differing_columns = {}, {}
    for head, column in columns.items():
        if len(set(column)) == 1 and not (entities and head == "entity"):
            shared_texts[head] = column[0]
        else:
            differing_columns[head] = column
    # A single series needs a name in its row too.
    columns = differing_columns or {"series": list(map(attrgetter("label"), rows))}
    return _distinguish(rows, columns, shared_texts)


def name_by_ids(rows: Sequence[Row], *, entities: bool) -> SeriesNames:
    """Name series by their ids.

    Args:
        entities: begin with the entity's id. Value version and publication follow where
            only they differ.
    """
    columns = {}
    if entities:
        columns["entity id"] = list(map(_IDS["entity id"], rows))
    columns["series id"] = list(map(_IDS["series id"], rows))
    return _distinguish(rows, columns)


def _distinguish(
    rows: Sequence[Row],
    columns: dict[str, list[str]],
    shared_texts: Mapping[str, str] = {},
) -> SeriesNames:
    """Return names of columns, and of ids as far as these distinguish equal names."""
    for head, get_id in _IDS.items():
        texts = zip(*columns.values(), strict=True)
        names = list(map(join_texts, texts))
        counts = Counter(names)
        if len(counts) == len(names):
            break
        ids, longer_names = [], set()
        for row, name in zip(rows, names, strict=True):
            id_ = ""
            if counts[name] > 1:
                id_ = get_id(row)
            ids.append(id_)
            longer_names.add((name, id_))
        if len(longer_names) > len(counts):
            columns[head] = ids
    texts = zip(*columns.values(), strict=True)
    texts_of = dict(zip(rows, texts, strict=True))
    return SeriesNames(shared_texts, tuple(columns), texts_of)
