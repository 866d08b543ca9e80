"""`asyncfin query`: one question to one entity or several, its result in several forms,
or only its plan.
"""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from asyncfin.cli.entities import Names
from asyncfin.cli.exits import UsageError
from asyncfin.cli.form import QueryForm
from asyncfin.cli.mistakes import whole
from asyncfin.cli.options import choose_one, require
from asyncfin.cli.question import Periods, Selection, period_group
from asyncfin.cli.service import Service

if TYPE_CHECKING:
    from asyncfin.model.query import ValueVersion


async def query(
    *entity_ids: str,
    selection: Selection = Selection(),
    periods: Periods = Periods(),
    restated: bool = False,
    ttm: Annotated[
        bool,
        Parameter(
            group=period_group,
            help="The last twelve months, added up of published values.",
        ),
    ] = False,
    latest: Annotated[
        int | None,
        Parameter(
            group=period_group,
            help="Only the last N values of each series.",
            converter=whole,
        ),
    ] = None,
    form: QueryForm = QueryForm(),
    names: Names = Names(),
    service: Service = Service(),
) -> None:
    """Query series and print their values as a table.

    The question is planned, so that it costs few requests. In the table a dot
    marks a period without a value; a reported zero is 0. Where no periods are
    named and there are more than 12, it shows the latest; CSV and JSON have all.

      asyncfin query ENTITY_ID --metric Revenue --annual --last 5
      asyncfin query ENTITY_ID --basis product --quarterly --csv > products.csv
      asyncfin query ENTITY_ID ENTITY_ID --metric EPS --annual --plot two.pdf
      asyncfin query ENTITY_ID ENTITY_ID --metric Revenue --ttm --unit billions

    Args:
        entity_ids: The entities, O- and 32 characters each, or their names. Several are
            compared.
        restated: The latest restated values instead of the original ones.
    """
    # All that can be known before a request is spent is checked first.
    form.check()
    wanted = {
        "--ttm": ttm,
        "--latest": latest is not None,
        "--plot": form.plot is not None,
    }
    if (
        (ttm or latest is not None)
        and (option := choose_one(wanted))
        and periods != Periods()
    ):
        raise UsageError(
            f"{option} requests all periods: leave out the other options of periods"
        )
    if ttm:
        require("pyarrow", "arrow", "--ttm")

    from asyncfin.cli.asked import entity_ids_of, select_of, selection_of

    if not (entities := list(dict.fromkeys(entity_ids_of(entity_ids, names)))):
        raise UsageError(
            "no entity is given: give an entity id, or several to compare them"
        )
    version: ValueVersion = "latest_restated" if restated else "original"
    of_all = select_of(selection), selection_of(periods), version
    service.check()

    from asyncfin.cli.panel import print_latest, print_missing, print_result
    from asyncfin.cli.plans import explain, read
    from asyncfin.cli.session import client_of, progress
    from asyncfin.cli.several import check_all
    from asyncfin.cli.twelve_months import print_twelve_months
    from asyncfin.client import publications_of
    from asyncfin.read.several import SeveralQuestion, compare

    question = SeveralQuestion(entities, *of_all)
    several = len(entities) > 1
    with progress("Reading") as shown, names.annotate():
        async with client_of(service, observers=[shown]) as client:
            if form.explain:
                await explain(client, question, names, shown, json=form.json)
                return
            comparison = (
                await compare(publications_of(client), question) if several else None
            )
            panels = (
                [*comparison] if comparison else [await read(client, question, shown)]
            )
    if comparison and not any(map(len, panels)):
        check_all(comparison, names)  # there is nothing to print: it raises
    if ttm:
        print_twelve_months(panels, selection.period_meaning, form)
    elif latest is not None:
        print_latest(comparison or panels[0], latest, form)
    else:
        print_result(comparison or panels[0], form, latest=periods == Periods())
    # A table says itself why it is empty.
    has_table = not any(form.options().values()) and not ttm
    print_missing(comparison or panels[0], has_table=has_table)
    if comparison:
        check_all(comparison, names)
