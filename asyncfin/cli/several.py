"""One question to several entities: what each has, which failed, and the exit code."""

from collections.abc import Iterable, Sequence
from functools import partial

from attrs import evolve, frozen

from asyncfin.cli.entities import Names
from asyncfin.cli.exits import EntitiesFailedError
from asyncfin.cli.streams import print_error
from asyncfin.client import Client
from asyncfin.errors import AsyncfinError, SelectionError
from asyncfin.extraction.report import missing_in_all, named
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.period import Annual, Quarterly
from asyncfin.plan.plan import Plan
from asyncfin.plan.question import Question
from asyncfin.read.entity import EntityAnswer
from asyncfin.read.many import ENDING
from asyncfin.tasks import bounded

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
        if not any(each.panel for each in read):
            self.check_all(Names())

    def check_all(self, names: Names) -> None:
        """Print a line for each entity that failed, and raise an error if one did, or for an unknown id.

        Raises:
            EntitiesFailedError: some failed.
            SelectionError: none has anything of the question, or no entity has one of the ids or words.
        """
        failed = [(each.entity_id, each.error) for each in self.answers if each.error is not None]
        for entity_id, error in failed:
            print_error(f"asyncfin: {names.named(entity_id)}: {error}")
        if self.ended is not None:
            raise self.ended
        if failed:
            raise EntitiesFailedError([type(error).__name__ for _, error in failed], self.entities)
        missing = [each.missing for each in self.answers]
        nothing = not any(each.panel for each in self.answers)
        unknown = missing_in_all(missing)
        if not nothing:
            unknown = {field: ids for field, ids in unknown.items() if field != "periods"}
        if unknown:
            panel = self.answers[0].panel
            near = f"; {panel.catalogue.complaint(unknown)}" if panel is not None else ""
            raise SelectionError(
                f"none of the {self.entities} entities has {named(unknown)}{near}", missing=unknown
            )
        if nothing:
            raise SelectionError(f"none of the {self.entities} entities has anything of the question")


async def read_several(client: Client, entities: Sequence[str], question: Question) -> Answers:
    """Return what each entity has; a rule is resolved once for all, so that one column is one period.

    Args:
        question: of the first entity.

    Raises:
        SelectionError: the rule matches no period of any entity.
    """
    found: dict[str, EntityAnswer] = {}
    max_age = None
    if isinstance(question.periods, (Annual, Quarterly)):
        catalogues, found = await read_catalogues(client, entities)
        if catalogues:
            question = evolve(question, periods=question.periods.resolve(catalogues))
        max_age = _MAX_AGE
    ended = None
    left = [each for each in entities if each not in found]
    try:
        async with client.query_many(
            left, question.select, question.periods, value_version=question.value_version, max_age=max_age
        ) as answers:
            async for answer in answers:
                found[answer.entity_id] = answer
    except ENDING as error:
        ended = error
    return Answers(tuple(found[each] for each in entities if each in found), len(entities), ended)


async def plan_several(
    client: Client, entities: Sequence[str], question: Question
) -> tuple[list[Plan], Answers]:
    """Return the plans of what each entity has, and what the others do not have. No query is sent."""
    catalogues, found = await read_catalogues(client, entities)
    if catalogues and isinstance(question.periods, (Annual, Quarterly)):
        question = evolve(question, periods=question.periods.resolve(catalogues))
    plans = []
    for catalogue in catalogues:
        of_one = evolve(question, source=catalogue, known_only=True)
        plans.append(await client.whole_read(catalogue.entity_id, "plan").plan(of_one))
    return plans, Answers(tuple(found.values()), len(entities))


async def read_catalogues(
    client: Client, entities: Iterable[str]
) -> tuple[list[Catalogue], dict[str, EntityAnswer]]:
    """Return the catalogues, and an answer with its error for each entity without one.

    Raises:
        AuthenticationError, AllowanceExhaustedError, BucketUnavailableError: no entity can be read.
    """

    async def read(entity_id: str) -> Catalogue | EntityAnswer:
        try:
            return await client.catalogue(entity_id)
        except ENDING:
            raise
        except AsyncfinError as error:
            return EntityAnswer(entity_id, None, error=error)

    async with bounded([partial(read, each) for each in entities], client.max_in_flight) as results:
        found = [each async for each in results]
    by_id = {each.entity_id: each for each in found}
    ordered = [by_id[each] for each in entities]
    catalogues = [each for each in ordered if isinstance(each, Catalogue)]
    return catalogues, {each.entity_id: each for each in ordered if isinstance(each, EntityAnswer)}
