"""`asyncfin search`: the metrics and scope paths of entities that words mean."""

from collections.abc import Iterator, Sequence
from typing import Annotated

from cyclopts import Parameter

from asyncfin.cli.entities import Names
from asyncfin.cli.exits import UsageError
from asyncfin.cli.form import Form
from asyncfin.cli.mistakes import whole
from asyncfin.cli.service import Service
from asyncfin.errors import SelectionError


async def search(
    words: str,
    /,
    *entity_ids: str,
    limit: Annotated[int, Parameter(converter=whole)] = 20,
    ids: bool = False,
    form: Form = Form(),
    names: Names = Names(),
    service: Service = Service(),
) -> None:
    """Find series of entities by words, best first: a row for each metric and scope path.

    Words are those of labels, metrics and scopes, or what analysts say: sales,
    R&D, capex. It costs the catalogues: one request for each 100 series of an
    entity, at least one; one if a cache has the current one.

      asyncfin search "net profit" ENTITY_ID ENTITY_ID
      asyncfin search "cloud revenue" ENTITY_ID --json

    Args:
        words: The words, as one argument.
        entity_ids: The entities, O- and 32 characters each, or their names.
        limit: How many rows to print.
        ids: Print scope paths and group ids in place of names of scopes.
    """
    if limit < 1:
        raise UsageError(f"--limit must be at least 1, not {limit}")
    if not words.strip():
        raise UsageError("no words are given: asyncfin catalogue lists all series")
    entities = list(dict.fromkeys(_entity_ids(words, entity_ids, names)))
    service.check()

    from asyncfin.cli.catalogues import print_found
    from asyncfin.cli.session import connected
    from asyncfin.cli.several import check_failed
    from asyncfin.client import reads_of
    from asyncfin.model.search import group_matches
    from asyncfin.read.several import catalogues_of

    async with connected(service, "Reading catalogues", names) as client:
        each = await catalogues_of(reads_of(client), entities)
    if len(entities) == 1 and each.failed:
        raise each.failed[entities[0]]
    catalogues = [*each.found.values()]
    groups = group_matches(catalogue.search(words).matches for catalogue in catalogues)
    if catalogues and not groups:
        check_failed(each.failed, each.ended, len(entities), names)
        raise SelectionError(f"no series has the words {words!r}, or comes close to them")
    print_found(groups, catalogues, form, ids=ids, limit=limit)
    check_failed(each.failed, each.ended, len(entities), names)


def _entity_ids(words: str, texts: Sequence[str], names: Names) -> Iterator[str]:
    if not texts:
        raise UsageError(f'no entity is given: search "{words}" ENTITY')
    for at, text in enumerate(texts):
        try:
            yield names.entity_id(text)
        except UsageError:
            # Without quotes, further words are taken for entities.
            if at or text.startswith("O-") or names.is_close(text):
                raise
            raise UsageError(
                f'{text!r} is not an entity; words are one argument: search "{words} {text}" ENTITY'
            ) from None
