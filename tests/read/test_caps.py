"""How a refused batch is cut: against a service of a few lines, which judges every request by its body."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest
from attrs import evolve, field, frozen
from hypothesis import given, settings, strategies as st

from asyncfin.model.catalogue import Catalogue, ReportingGroup
from asyncfin.model.period import Period
from asyncfin.model.query import Query
from asyncfin.model.scope import ScopeRef
from asyncfin.model.select import Select
from asyncfin.model.selection import Annual, Exact, FiscalRange, PeriodSelection, Quarterly, Trailing
from asyncfin.model.series import CatalogueSeries
from asyncfin.plan.plan import Batch, plan
from asyncfin.plan.question import Question
from asyncfin.read.caps import NO_CAPS, Cap, Caps, Cutting, Kind, Part, joined

PERIODS = [
    Period(year, month, months)
    for year in range(2013, 2025)
    for month, months in ((3, 3), (6, 3), (9, 3), (12, 3), (12, 12))
]


@cache
def catalogue_of(metrics: int, paths: int, groups: int = 1, every: int = 1) -> Catalogue:
    """Return a table of series over twelve years, in which one of `every` cells is there."""
    return Catalogue(
        "O-" + "0" * 32,
        "Example Company",
        "00000000-0000-4000-8000-000000000001",
        datetime(2026, 2, 3, tzinfo=UTC),
        tuple(sorted(PERIODS)),
        (),
        tuple(
            ReportingGroup(
                f"g{group}",
                "",
                "",
                "",
                "",
                tuple(
                    CatalogueSeries(
                        f"m{metric}.p{path}.g{group}",
                        f"g{group}",
                        f"m{metric}",
                        "",
                        "",
                        "",
                        (ScopeRef("segment", f"p{path}"),),
                        "",
                        "",
                    )
                    for metric in range(metrics)
                    for path in range(paths)
                    if (metric + path) % every == 0
                ),
            )
            for group in range(groups)
        ),
    )


def body_of(query: Query) -> dict[str, Any]:
    """Return the body of a query, written by hand (spec 4.3)."""

    def written(period: Period | None) -> dict[str, int]:
        assert period
        return {"year": period.year, "end_month": period.end_month, "duration_months": period.duration_months}

    match query.periods:
        case Exact(periods=exact):
            periods: dict[str, Any] = {"mode": "exact", "exact": [written(each) for each in exact]}
        case FiscalRange(start=start, end=end):
            periods = {"mode": "fiscal_range", "from": written(start), "to": written(end)}
        case _:
            raise AssertionError
    body = {
        "metric_ids": list(query.metric_ids),
        "scope_combinations": [
            [{"scope_group_id": ref.scope_group_id, "scope_id": ref.scope_id} for ref in path]
            for path in query.scope_combinations
        ],
        "periods": periods,
        "expected_dataset_id": query.expected_dataset_id,
        "value_version": query.value_version,
        "limit": 100,
    }
    if query.reporting_group_ids is not None:
        body["reporting_group_ids"] = list(query.reporting_group_ids)
    return body


def months_of(body: Mapping[str, Any]) -> range:
    """Return the fiscal ends of a body's range, as numbers of months."""
    first, last = (
        body["periods"][end]["year"] * 12 + body["periods"][end]["end_month"] for end in ("from", "to")
    )
    return range(first, last + 1)


@frozen
class Service:
    """The caps of a service; `refuses` are metrics that it refuses in themselves."""

    exact: int = 10**9
    months: int = 10**9
    ids: int = 10**9
    size: int = 10**9
    size_first: bool = True
    refuses: frozenset[str] = frozenset()

    def status(self, query: Query) -> int:
        """Return the status of the refusal of a query; 0: it is accepted."""
        body = body_of(query)
        is_exact = body["periods"]["mode"] == "exact"
        is_invalid = (
            (is_exact and len(body["periods"]["exact"]) > self.exact)
            or (not is_exact and len(months_of(body)) > self.months)
            or len(body["metric_ids"]) * len(body["scope_combinations"]) > self.ids
            or not self.refuses.isdisjoint(body["metric_ids"])
        )
        statuses = [400] * is_invalid + [413] * (len(json.dumps(body, separators=(",", ":"))) > self.size)
        return (sorted(statuses, reverse=self.size_first) or [0])[0]


@frozen
class Sent:
    """What was sent for a question."""

    accepted: list[Batch] = field(factory=list)  # without probes
    probes: list[Batch] = field(factory=list)
    refused: list[Batch] = field(factory=list)

    @property
    def requests(self) -> int:
        return len(self.accepted) + len(self.probes) + len(self.refused)


def send(
    service: Service,
    catalogue: Catalogue,
    batches: Iterable[Batch],
    known: Caps = NO_CAPS,
    sent: Sent | None = None,
) -> tuple[Sent, Caps]:
    """Send batches one after the other, and return what is known then."""
    sent = sent or Sent()
    for batch in batches:
        cutting = Cutting(Part.of(batch, catalogue), catalogue, known)
        while (part := cutting.part) is not None:
            received = []
            status = 0
            for query in part.queries:
                if status := service.status(query):
                    sent.refused.append(query)
                    break
                received.append(query)
            if status:
                cutting.refused(status, known)
            else:
                (sent.probes if part.is_probe else sent.accepted).extend(received)
                cutting.passed(known)
                known = joined([known, cutting.learned])
        assert cutting.is_refused == bool(service.refuses)
    return sent, known


def cells(queries: Iterable[Batch], ends: Iterable[int]) -> Counter[tuple[str, int]]:
    """Return how often each home series is requested at each of some fiscal ends."""
    found: Counter[tuple[str, int]] = Counter()
    for query in queries:
        body = body_of(query)
        covered = set(ends)
        if body["periods"]["mode"] == "fiscal_range":
            covered &= set(months_of(body))
        found.update((series_id, end) for series_id in query.home for end in covered)
    return found


@cache
def planned(catalogue: Catalogue, periods: PeriodSelection) -> tuple[tuple[Batch, ...], set[int]]:
    """Return the batches of a question for all series, and the fiscal ends that they are about."""
    question = Question(catalogue, Select(), periods)
    series, _ = question.wanted(catalogue)
    batches = plan(question, catalogue, series).batches
    wanted = batches[0].periods
    if isinstance(wanted, Exact):
        return batches, {period.fiscal_end for period in wanted.periods}
    return batches, set(months_of(body_of(batches[0])))


def ranges(queries: Iterable[Query]) -> list[int]:
    """Return the lengths of the ranges of queries, in months; 0: exact periods."""
    return [0 if isinstance(each.periods, Exact) else len(months_of(body_of(each))) for each in queries]


services = st.builds(
    Service,
    exact=st.sampled_from([1, 2, 3, 10, 40, 10**9]),
    months=st.sampled_from([12, 60, 120, 10**9]),
    ids=st.sampled_from([7, 100, 200, 500, 1000, 10**9]),
    size=st.sampled_from([1100, 2048, 4096, 8192, 10**9]),
    size_first=st.booleans(),
)
questions = st.sampled_from(
    [
        FiscalRange(),
        Trailing(24),
        Annual(),
        Annual(last=1),
        Annual(last=2),
        Quarterly(),
        Exact(["FY2014", "FY2023"]),
        FiscalRange("FY2015", "FY2021"),
    ]
)
tables = st.sampled_from(
    [(50, 30, 1, 12), (60, 50, 2, 40), (12, 12), (3, 40, 3), (1, 1, 130), (1, 1), (50, 2)]
)


@settings(max_examples=40)
@given(services, questions, tables)
def test_every_series_is_received_once_at_every_fiscal_end_and_the_second_time_nothing_is_refused(
    service: Service, periods: PeriodSelection, table: tuple[int, ...]
) -> None:
    """Whatever the caps: what is learned is enough for an equal question, and never too much for another."""
    catalogue = catalogue_of(*table)
    batches, ends = planned(catalogue, periods)
    wanted = {(series_id, end) for batch in batches for series_id in batch.home for end in ends}
    first, known = send(service, catalogue, batches)
    assert cells(first.accepted, ends) == dict.fromkeys(wanted, 1)
    assert len(first.refused) <= 16
    again, same = send(service, catalogue, batches, known)
    assert not again.refused
    assert not again.probes
    assert cells(again.accepted, ends) == dict.fromkeys(wanted, 1)
    assert same == known
    if not first.refused:
        assert not known
        assert again.accepted == first.accepted == list(batches)


@settings(max_examples=40)
@given(services, st.lists(st.tuples(questions, tables), min_size=2, max_size=3))
def test_what_was_learned_of_one_question_never_loses_a_value_of_the_next(
    service: Service, asked: list[tuple[PeriodSelection, tuple[int, ...]]]
) -> None:
    known = NO_CAPS
    for periods, table in asked:
        catalogue = catalogue_of(*table)
        batches, ends = planned(catalogue, periods)
        wanted = {(series_id, end) for batch in batches for series_id in batch.home for end in ends}
        sent, known = send(service, catalogue, batches, known)
        assert cells(sent.accepted, ends) == dict.fromkeys(wanted, 1)
        for cap in known.values():
            assert cap.passed is None or cap.refused is None or cap.passed < cap.refused


def learned(**caps: tuple[int | None, int]) -> Caps:
    """Return caps by the names of their kinds: what passed, and what was refused."""
    return {Kind[name.upper()]: Cap(*sizes) for name, sizes in caps.items()}


SPARSE = catalogue_of(50, 30, 1, 15)  # one batch of 50 x 30, which is one page


def test_a_batch_of_too_many_ids_is_halved_after_one_series_has_shown_that_its_periods_are_accepted() -> None:
    (batch,), _ = planned(SPARSE, FiscalRange())
    sent, known = send(Service(ids=500), SPARSE, [batch])
    assert [(len(each.metric_ids), len(each.scope_combinations)) for each in sent.refused] == [
        (50, 30),
        (25, 30),
    ]
    (probe,) = sent.probes
    assert (len(probe.metric_ids), len(probe.scope_combinations)) == (1, 1)
    assert probe.reporting_group_ids == ("g0",)
    assert probe.periods == batch.periods
    assert [(len(each.metric_ids), len(each.scope_combinations)) for each in sent.accepted] == [
        (25, 15),
        (25, 15),
        (25, 15),
        (25, 15),
    ]
    assert known == learned(ids=(375, 750))


@pytest.mark.parametrize(("periods", "forms"), [(Annual(), [0, 142, 0]), (Annual(last=1), [0, 0])])
def test_exact_periods_stay_exact_where_the_ids_are_too_many(
    periods: PeriodSelection, forms: list[int]
) -> None:
    """A range has more values than were asked for, and may be refused where exact periods are not."""
    (batch,), _ = planned(SPARSE, periods)
    sent, known = send(Service(ids=1000), SPARSE, [batch])
    assert ranges([*sent.refused, *sent.probes]) == forms
    assert ranges(sent.accepted) == [0, 0]
    assert known == learned(ids=(750, 1500))


def test_too_many_exact_periods_are_requested_as_a_range_from_the_smallest_refused_number_on() -> None:
    (batch,), _ = planned(SPARSE, Annual())
    sent, known = send(Service(exact=5), SPARSE, [batch])
    assert ranges([*sent.refused, *sent.accepted]) == [0, 142]
    assert known == learned(exact=(None, 12))
    for last, form in ((12, [142]), (11, [0, 142])):
        sent, _ = send(Service(exact=5), SPARSE, planned(SPARSE, Annual(last=last))[0], known)
        assert ranges([*sent.refused, *sent.accepted]) == form
    few, _ = send(Service(exact=5), SPARSE, planned(SPARSE, Annual(last=5))[0], known)
    assert ranges(few.accepted) == [0]


@pytest.mark.parametrize(
    ("most", "refused", "passes"),
    [(120, [142, 142], 71), (60, [142, 142, 71], 36), (1, [142, 142, 71, 36, 18, 9, 5, 3, 2], 1)],
)
def test_months_are_halved_for_one_series_and_the_newest_come_first(
    most: int, refused: list[int], passes: int
) -> None:
    (batch,), ends = planned(SPARSE, Trailing(24))
    sent, known = send(Service(months=most), SPARSE, [batch])
    assert ranges(sent.refused) == refused
    assert all(len(each.metric_ids) == 1 for each in sent.refused[1:])
    for query in [*sent.refused[1:], *sent.probes]:
        assert max(months_of(body_of(query))) == max(ends), "the newest part"
    assert [len(each.home) for each in sent.probes] == [1]
    newest = [months_of(body_of(each)) for each in sent.accepted]
    assert [each for part in reversed(newest) for each in part] == sorted(ends)
    assert {*map(len, newest[:-1])} == {passes}
    assert known == learned(months=(passes, refused[-1]))


def test_of_exact_periods_only_the_parts_that_contain_one_are_requested() -> None:
    (batch,), _ = planned(SPARSE, Exact(["FY2014", "FY2015", "FY2024"]))
    sent, _ = send(Service(exact=2, months=20), SPARSE, [batch])
    assert [each.periods for each in sent.accepted] == [
        FiscalRange((2023, 7), (2024, 12)),
        FiscalRange((2014, 7), (2015, 12)),
    ]
    assert [each.periods for each in sent.accepted] != [batch.periods]


@pytest.mark.parametrize("size", [700, 1200])
def test_a_body_that_is_too_large_is_halved_without_a_probe(size: int) -> None:
    (batch,), _ = planned(SPARSE, FiscalRange())
    sent, known = send(Service(size=size), SPARSE, [batch])
    assert not sent.probes
    assert known.keys() == {Kind.BYTES}
    passed, refused = known[Kind.BYTES].passed, known[Kind.BYTES].refused
    assert passed
    assert refused
    assert passed <= size < refused


def test_a_batch_is_cut_to_what_has_passed_and_not_to_what_was_not_refused() -> None:
    known = learned(ids=(400, 1200))
    sent, after = send(Service(ids=1000), SPARSE, planned(SPARSE, FiscalRange())[0], known)
    assert not sent.refused
    assert [len(each.metric_ids) * len(each.scope_combinations) for each in sent.accepted] == [375] * 4
    assert after == known


def test_a_later_refusal_below_what_has_passed_lowers_it() -> None:
    known = learned(ids=(1000, 1200))
    sent, after = send(Service(ids=500), SPARSE, planned(SPARSE, FiscalRange())[0], known)
    assert [len(each.metric_ids) * len(each.scope_combinations) for each in sent.refused] == [750]
    assert after == learned(ids=(375, 750))


def test_a_half_without_home_series_is_not_sent() -> None:
    (batch,), _ = planned(SPARSE, FiscalRange())
    home = {each for each in batch.home if each.startswith("m49.")}
    sent, _ = send(Service(ids=1000), SPARSE, [evolve(batch, home=frozenset(home))])
    assert [each.metric_ids[-1] for each in sent.accepted] == ["m49"]
    assert [each.home for each in sent.accepted] == [home]


@pytest.mark.parametrize("periods", [FiscalRange(), Annual(), Annual(last=1)])
def test_a_metric_that_is_refused_in_itself_ends_the_search_at_the_smallest_batch(
    periods: PeriodSelection,
) -> None:
    (batch,), _ = planned(SPARSE, periods)
    service = Service(refuses=frozenset({"m31"}))
    sent = Sent()
    send(service, SPARSE, [batch], sent=sent)
    refused = sent.refused
    assert refused[-1].metric_ids == ("m31",)
    assert len(refused[-1].scope_combinations) == 1
    assert len(refused) <= 16


def test_what_another_batch_has_learned_cuts_a_refused_one_without_a_search() -> None:
    (batch,), _ = planned(SPARSE, FiscalRange())
    cutting = Cutting(Part.of(batch, SPARSE), SPARSE)
    cutting.refused(400, learned(ids=(375, 750)))
    assert cutting.part
    assert not cutting.searches
    assert cutting.part.size(Kind.IDS) == 375
    cutting.refused(400, learned(ids=(375, 750)))
    assert cutting.searches


known_sizes = st.builds(Cap, st.none() | st.integers(1, 9), st.none() | st.integers(1, 9))


@given(st.lists(known_sizes, min_size=1))
def test_what_several_know_is_the_smallest_refusal_and_the_largest_pass_below_it(several: list[Cap]) -> None:
    refused = min((each.refused for each in several if each.refused), default=None)
    passed = max((p for each in several if (p := each.passed) and (not refused or p < refused)), default=None)
    assert joined([{Kind.IDS: each} for each in several]) == {Kind.IDS: Cap(passed, refused)}
