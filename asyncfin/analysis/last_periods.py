"""The last periods with a value of series that a client has cached."""

import asyncio

from asyncfin import Catalogue, Client, FiscalRange, Panel, Period, Select


async def read_last_periods(client: Client, catalogue: Catalogue) -> dict[str, Period]:
    """The last period with a value of each cached series, for a search. No request.

    A search ranks series that have ended behind the others. It is empty if the cache
    is.
    """
    if not catalogue.series or not catalogue.periods:
        return {}
    periods = FiscalRange()
    plan = await client.plan(catalogue, Select(), periods)
    if not plan.cached:
        return {}
    select = Select.of(plan.cached)
    plan = await client.plan(catalogue, select, periods)
    if plan.requests:  # dropped from the cache meanwhile
        return {}
    panel = await client.run(plan)
    return await asyncio.to_thread(_find_last_periods, panel)


def _find_last_periods(panel: Panel) -> dict[str, Period]:
    last_periods = {}
    for series in panel:
        for period, _ in series.observations():  # oldest first: the last one stays
            last_periods[series.series_id] = period
    return last_periods
