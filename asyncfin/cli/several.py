"""One question to several entities: what each has, which failed, and the exit code."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Generic, TypeVar

from attrs import evolve, frozen

from asyncfin.cli.entities import Names
from asyncfin.cli.exits import EntitiesFailedError
from asyncfin.cli.streams import print_error
from asyncfin.client import Client, reads_of
from asyncfin.errors import AsyncfinError, SelectionError, ends_all
from asyncfin.extraction.report import missing_in_all, named
from asyncfin.extraction.unknown import without_periods
from asyncfin.model.judge import complaint
from asyncfin.model.selection import Rule
from asyncfin.plan.plan import Plan
from asyncfin.plan.question import Question
from asyncfin.read.entity import EntityAnswer
from asyncfin.tasks import bounded

T = TypeVar("T")

# The catalogues that this command has just read are not confirmed a second time.
_MAX_AGE = 60.0


@frozen
class Answers:
    """What several entities have of a question.

    Attributes:
        answers: those that are finished, in the order of the command line.
        entities: how many were requested.
        ended: why the others were not read. None: all were.
    """

    answers: tuple[EntityAnswer, ...]
    entities: int
    ended: AsyncfinError | None = None

    def check_any(self) -> None:
        """Raise an error if there is nothing to print: none was read, or none has anything."""
        read = [each for each in self.answers if each.panel is not None]
        if not read and self.ended is not None:
            raise self.ended
        if not any(each.panel is not None and len(each.panel) for each in read):
            self.check_all(Names())

    def check_all(self, names: Names) -> None:
        """Print a line for each entity that failed, and raise an error if one did, or for an unknown id.

        Raises:
            EntitiesFailedError: some failed.
            SelectionError: none has anything of the question, or no entity has one of the ids or words.
        """
        failed = {each.entity_id: each.error for each in self.answers if each.error is not None}
        check_failed(failed, self.ended, self.entities, names)
        nothing = not any(each.panel is not None and len(each.panel) for each in self.answers)
        unknown = missing_in_all(each.missing for each in self.answers)
        if not nothing:
            unknown = without_periods(unknown)
        none = f"none of the {self.entities} entities has"
        if unknown:
            panel = self.answers[0].panel
            near = f"; {complaint(panel.catalogue, unknown)}" if panel is not None else ""
            raise SelectionError(f"{none} {named(unknown)}{near}", missing=unknown)
        if nothing:
            raise SelectionError(f"{none} anything of the question")


async def read_several(client: Client, entities: Sequence[str], question: Question) -> Answers:
    """Return what each entity has; a rule is resolved once for all, so that one column is one period.

    Args:
        question: of the first entity.

    Raises:
        SelectionError: the rule matches no period of any entity.
    """
    found: dict[str, EntityAnswer] = {}
    max_age = ended = None
    if isinstance(question.periods, Rule):
        each = await read_each(client, entities, client.catalogue)
        found, ended = each.answers(), each.ended
        if each.found:
            question = evolve(question, periods=question.periods.resolve(each.found.values()))
        max_age = _MAX_AGE
    left = [each for each in entities if each not in found]
    try:
        async with client.query_many(
            left, question.select, question.periods, value_version=question.value_version, max_age=max_age
        ) as answers:
            async for answer in answers:
                found[answer.entity_id] = answer
    except AsyncfinError as error:
        if not ends_all(error, waits=True):
            raise
        ended = error
    return Answers(tuple(found[each] for each in entities if each in found), len(entities), ended)


async def plan_several(
    client: Client, entities: Sequence[str], question: Question
) -> tuple[list[Plan], Answers]:
    """Return the plans of what each entity has, and the answers of those that failed. No query is sent."""
    each = await read_each(client, entities, client.catalogue)
    if each.found and isinstance(question.periods, Rule):
        question = evolve(question, periods=question.periods.resolve(each.found.values()))
    plans = []
    for catalogue in each.found.values():
        of_one = evolve(question, source=catalogue, known_only=True)
        async for attempt in reads_of(client).attempts(catalogue.entity_id, "plan"):
            async with attempt:
                plan = await attempt.plan(of_one)
        plans.append(plan)
    return plans, Answers(tuple(each.answers().values()), len(entities), each.ended)


@frozen
class Each(Generic[T]):
    """What was read of several entities, in the order of the command line.

    Attributes:
        found: what was read, by entity id.
        failed: the errors of the others.
        ended: why some were not read at all. None: all were.
    """

    found: dict[str, T]
    failed: dict[str, AsyncfinError]
    ended: AsyncfinError | None

    def answers(self) -> dict[str, EntityAnswer]:
        """Return an answer for each entity that failed."""
        return {each: EntityAnswer(each, None, error=error) for each, error in self.failed.items()}


async def read_each(client: Client, entities: Sequence[str], read: Callable[[str], Awaitable[T]]) -> Each[T]:
    """Read something of each entity; what would fail every other one too ends the reading."""
    found: dict[str, T] = {}
    failed: dict[str, AsyncfinError] = {}
    ended: AsyncfinError | None = None

    async def read_one(entity_id: str) -> None:
        nonlocal ended
        try:
            if ended is None:
                found[entity_id] = await read(entity_id)
        except AsyncfinError as error:
            if ends_all(error, waits=False):
                ended = ended or error
            else:
                failed[entity_id] = error

    async with bounded([partial(read_one, each) for each in entities], client.max_in_flight) as ends:
        async for _ in ends:
            pass
    in_order = [each for each in entities if each in found]
    return Each({each: found[each] for each in in_order}, failed, ended)


def check_failed(
    failed: Mapping[str, AsyncfinError], ended: AsyncfinError | None, entities: int, names: Names
) -> None:
    """Print a line for each entity that failed, and raise an error if there is one.

    Raises:
        EntitiesFailedError: some failed.
        AsyncfinError: what ended the reading.
    """
    for entity_id, error in failed.items():
        print_error(f"asyncfin: {names.named(entity_id)}: {error}")
    if ended is not None:
        raise ended
    if failed:
        raise EntitiesFailedError([type(error).__name__ for error in failed.values()], entities)
