"""The parameters that programs pass by name or by place. More may follow, all of them optional."""

from collections.abc import Callable
from datetime import timedelta
from inspect import Parameter, iscoroutinefunction, signature
from typing import Any

import pytest

import asyncfin
from asyncfin import Client, Retry, Timeouts, web
from asyncfin.client import ClientOptions

QUESTION = "source, select, periods, *, value_version='original', max_age=None"
BUCKET = "rate=None, burst=1, *, daily_budget=None"
RANGE = "start=None, end=None"


@pytest.mark.parametrize(
    ("called", "parameters"),
    [
        (
            Client,
            "base_url, token, *, bucket=None, retry=Retry(), timeouts=Timeouts(), max_in_flight=8,"
            " lane='interactive', cache=None, max_age=0.0, stale_if_error=0.0, allow_http=False",
        ),
        (Client.dataset, "self, entity_id"),
        (Client.catalogue_pages, "self, entity_id, *, expected_dataset_id=None, page_size=100"),
        (Client.catalogue, "self, entity_id, *, max_age=None"),
        (Client.query_pages, "self, entity_id, query, *, page_size=100, prefetch=False"),
        (Client.plan, f"self, {QUESTION}"),
        (Client.run, "self, plan"),
        (Client.query, f"self, {QUESTION}"),
        (Client.stream, f"self, {QUESTION}"),
        (
            Client.compare,
            "self, entity_ids, select, periods, *, value_version='original', max_age=None",
        ),
        (
            Client.query_many,
            "self, entity_ids, select, periods, *, value_version='original', ahead=None, max_age=None",
        ),
        (asyncfin.Period, "year, end_month, duration_months"),
        (asyncfin.Exact, "periods"),
        (asyncfin.Exact.resolve, "self, catalogues"),
        (asyncfin.FiscalRange, RANGE),
        (asyncfin.Trailing, "months"),
        (asyncfin.Annual, f"{RANGE}, last=None"),
        (asyncfin.Quarterly, f"{RANGE}, last=None"),
        (asyncfin.Annual.resolve, "self, catalogues"),
        (asyncfin.ScopeRef, "scope_group_id, scope_id"),
        (
            asyncfin.Select,
            "metric_ids=None, scope_combinations=None, reporting_group_ids=None, scope_group_ids=None,"
            " basis=None, cadence=None, period_meaning=None, label=None, series_ids=None, where=None,"
            " name=None",
        ),
        (asyncfin.Catalogue.select, "self, select"),
        (asyncfin.Catalogue.to_arrow, "self, select=None"),
        (asyncfin.Catalogue.to_pandas, "self, select=None"),
        (asyncfin.Catalogue.to_polars, "self, select=None"),
        (
            asyncfin.Query,
            "metric_ids, scope_combinations, periods, reporting_group_ids=None, value_version='original',"
            " expected_dataset_id=None",
        ),
        (asyncfin.Panel.why, "self, key, period"),
        (asyncfin.Panel.to_arrow, "self, layout=None"),
        (asyncfin.Panel.to_pandas, "self, layout=None"),
        (asyncfin.Panel.to_polars, "self, layout=None"),
        (asyncfin.concat, "panels, layout='long', labels=False"),
        (asyncfin.TokenBucket, BUCKET),
        (asyncfin.FileBucket, f"path, {BUCKET}"),
        (
            asyncfin.RedisBucket,
            "redis, *, account, rate=None, burst=1, daily_budget=None, fallback=None, silent=0.5",
        ),
        (asyncfin.MemoryCache, "max_bytes=67108864, *, account=None"),
        (asyncfin.FileCache, "folder, *, account=None, max_bytes=1073741824"),
        (asyncfin.RedisCache, "redis, *, account, keep=timedelta(days=30)"),
        (
            Retry,
            "*, attempts=5, max_elapsed=120, wait_initial=0.5, wait_max=20, max_retry_after=60",
        ),
        (Timeouts, "*, connect=10, read=30, total=60"),
        (asyncfin.extract, "client, entity_ids, select, periods, *, to"),
        (
            asyncfin.read_entity,
            "client, entity_id, select, periods, *, value_version='original', unless=None",
        ),
        (asyncfin.changes, "old, new"),
        (asyncfin.read_changes, "to, *, since=None"),
        (asyncfin.as_of, "to, when, *, columns=None"),
        (asyncfin.known_by, "original, restated, reported"),
        (web.explorer, "client, entities, *, hosts=('127.0.0.1', 'localhost')"),
        (web.http_error, "error"),
        (web.unless_gone, "request, work, seconds"),
        (web.reply, "panel, *, accept, if_none_match=None, max_age=None"),
    ],
)
def test_signatures_are_stable(called: Callable[..., Any], parameters: str) -> None:
    """The same names, in the same order where places count, with the same defaults."""
    wanted = _signature(parameters)
    found = [each for name, each in signature(called).parameters.items() if not name.startswith("_")]
    by_place = [each for each in found if each.kind is not Parameter.KEYWORD_ONLY]
    expected = [each for each in wanted if each.kind is not Parameter.KEYWORD_ONLY]
    assert [each.name for each in by_place[: len(expected)]] == [each.name for each in expected]
    by_name = {each.name: each for each in found}
    for each in wanted:
        assert by_name[each.name].default == each.default, each.name
        if each.kind is Parameter.KEYWORD_ONLY:
            assert by_name[each.name].kind is Parameter.KEYWORD_ONLY, each.name
    named = {each.name for each in wanted}
    assert all(each.default is not Parameter.empty for each in found if each.name not in named)


def _signature(parameters: str) -> list[Parameter]:
    known = {"Retry": Retry, "Timeouts": Timeouts, "timedelta": timedelta}
    return list(signature(eval(f"lambda {parameters}: None", known)).parameters.values())


def test_coroutine_methods_are_recognizable() -> None:
    """Frameworks look at functions: whether a call is to be awaited."""
    for method in ("plan", "query", "compare", "run", "dataset", "catalogue", "usage", "limits", "aclose"):
        assert iscoroutinefunction(getattr(Client, method)), method
    # These check their arguments at once, and return an async generator or context manager.
    for method in ("catalogue_pages", "query_pages", "stream", "query_many"):
        assert not iscoroutinefunction(getattr(Client, method)), method


def test_client_options_are_its_keywords() -> None:
    """Those who pass options on miss none, and invent none."""
    parameters = signature(Client).parameters.values()
    keywords = {parameter.name for parameter in parameters if parameter.kind is Parameter.KEYWORD_ONLY}
    assert set(ClientOptions.__annotations__) == keywords
