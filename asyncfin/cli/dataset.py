"""`asyncfin dataset` and `asyncfin catalogue`: the current publication, and its series."""

from attrs import asdict

from asyncfin.cli.entities import Names
from asyncfin.cli.exits import UsageError
from asyncfin.cli.form import Form
from asyncfin.cli.options import AsJson
from asyncfin.cli.question import Selection
from asyncfin.cli.service import Service


async def dataset(
    entity_id: str, /, *, json: AsJson = False, names: Names = Names(), service: Service = Service()
) -> None:
    """Show the current publication of an entity's dataset.

    It costs one request.

      asyncfin dataset O-be85f4935d7b5a92be2a582583b4d7a4

    Args:
        entity_id: The entity, O- and 32 characters, or its name.
    """
    entity_id = names.entity_id(entity_id)
    service.check()

    from asyncfin.cli.output import print_json, print_table, screen
    from asyncfin.cli.session import connected
    from asyncfin.table.text import columns

    async with connected(service, "Reading", names) as client:
        current = await client.dataset(entity_id)
    if json:
        print_json(current)
        return
    console = screen()
    fields = [(name, str(value)) for name, value in asdict(current).items()]
    print_table(console, columns(("field", "value"), fields, console.width))


async def catalogue(
    *entity_ids: str,
    selection: Selection = Selection(),
    descriptions: bool = False,
    form: Form = Form(),
    names: Names = Names(),
    service: Service = Service(),
) -> None:
    """List the series of an entity, or compare those of several: all, or those selected.

    It costs one request for each 100 series of an entity's dataset, at least
    one; one if a cache has its current catalogue. The reporting groups, metrics
    and scope paths listed are what `asyncfin query` takes as --group, --metric
    and --scope. Of several entities it prints a table of metrics: how many
    series of each an entity has.

      asyncfin catalogue ENTITY_ID --basis product
      asyncfin catalogue ENTITY_ID ENTITY_ID --basis consolidated

    Args:
        entity_ids: The entities, O- and 32 characters each, or their names.
        descriptions: Show the descriptions too, which state the unit. For one entity.
    """
    from asyncfin.cli.asked import select_of

    entities = list(dict.fromkeys(map(names.entity_id, entity_ids)))
    if not entities:
        raise UsageError("no entity is given: give an entity id, or several to compare them")
    select, several = select_of(selection), len(entities) > 1
    if several and descriptions:
        raise UsageError("--descriptions is for one entity: of several, the table has their metrics")
    service.check()

    from asyncfin.cli.catalogues import print_selected, print_selected_of_several
    from asyncfin.cli.session import connected
    from asyncfin.client import reads_of
    from asyncfin.read.several import catalogues_of

    async with connected(service, "Reading the catalogue", names) as client:
        if several:
            each = await catalogues_of(reads_of(client), entities)
        else:
            # The whole one: an unknown id is refused with what comes close, which a part would not know.
            whole = await client.catalogue(entities[0])
    if several:
        print_selected_of_several(each, select, len(entities), names, form)
    else:
        print_selected(whole, select, form, descriptions=descriptions)
