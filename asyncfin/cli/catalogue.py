"""`asyncfin catalogue`: the series of entities, all, selected, or found by words."""

from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter

from asyncfin.cli.entities import Names
from asyncfin.cli.exits import UsageError
from asyncfin.cli.form import Form
from asyncfin.cli.mistakes import whole
from asyncfin.cli.question import Selection
from asyncfin.cli.service import Service


async def catalogue(
    *entity_ids: str,
    search: str | None = None,
    limit: Annotated[int, Parameter(converter=whole)] = 20,
    ids: bool = False,
    publication: bool = False,
    selection: Selection = Selection(),
    descriptions: bool = False,
    form: Form = Form(),
    names: Names = Names(),
    service: Service = Service(),
) -> None:
    """List the series of entities, or search them by words.

    It costs one request for each 100 series of an entity's dataset, at least
    one; one if a cache has its current catalogue. The reporting groups, metrics
    and scope paths listed are what `asyncfin query` takes as --group, --metric
    and --scope. Of several entities it prints a table of metrics: how many
    series of each an entity has. With --search it prints a row for each metric
    and scope path that the words mean, best first: words of labels, metrics and
    scopes, or what analysts say, such as sales, R&D, capex.

      asyncfin catalogue ENTITY_ID --basis product
      asyncfin catalogue ENTITY_ID ENTITY_ID --basis consolidated
      asyncfin catalogue ENTITY_ID --search "cloud revenue"

    Args:
        entity_ids: The entities, O- and 32 characters each, or their names.
        search: The words to find series by, as one argument.
        limit: How many rows of a search to print.
        ids: Print scope paths and reporting groups of a search, in place of names of
            scopes.
        publication: Show only the metadata of the current publication. For one entity,
            and one request.
        descriptions: Show the descriptions too, which state the unit. For one entity.
    """
    from asyncfin.cli.asked import select_of
    from asyncfin.model.select import Select

    entities = list(dict.fromkeys(_entity_ids(entity_ids, search, names)))
    if not entities:
        raise UsageError(
            "no entity is given: give an entity id, or several to compare them"
        )
    select, several = select_of(selection), len(entities) > 1
    if several and (descriptions or publication):
        option = "--descriptions" if descriptions else "--publication"
        raise UsageError(f"{option} is for one entity")
    if search is not None and (publication or descriptions or select != Select()):
        raise UsageError(
            "--search finds series by words alone: leave the other selection out"
        )
    if search is not None and not search.strip():
        raise UsageError("--search has no words: leave it out to list all series")
    if limit < 1:
        raise UsageError(f"--limit must be at least 1, not {limit}")
    service.check()

    from asyncfin.cli import catalogues

    if publication:
        await catalogues.show_publication(entities[0], form, names, service)
    elif search is not None:
        await catalogues.show_search(
            entities, search, form, names, service, ids=ids, limit=limit
        )
    elif several:
        await catalogues.show_several(entities, select, form, names, service)
    else:
        await catalogues.show_series(
            entities[0], select, form, names, service, descriptions=descriptions
        )


def _entity_ids(texts: Sequence[str], words: str | None, names: Names) -> list[str]:
    entity_ids = []
    for text in texts:
        try:
            entity_ids.append(names.entity_id(text))
        except UsageError:
            # Without quotes, further words of a search are taken for entities.
            if words is None or text.startswith("O-") or names.is_close(text):
                raise
            raise UsageError(
                f'{text!r} is not an entity; words are one argument: --search "{words} '
                f'{text}"'
            ) from None
    return entity_ids
