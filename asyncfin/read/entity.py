"""One entity's answer to a question that is asked of many: what it has, and what it does not have."""

from __future__ import annotations

from attrs import field, frozen

from asyncfin.errors import AsyncfinError
from asyncfin.model.judge import Missing
from asyncfin.plan.question import Question
from asyncfin.table.panel import Panel


@frozen
class EntityAnswer:
    """The answer of one entity.

    Attributes:
        entity_id: the entity.
        panel: what the entity has of the question, of one publication; without series if it has nothing.
            None: there was an error.
        restated: the same with the restated values, where both versions were requested; otherwise None.
        missing: the ids, words and periods of the question that the entity does not have, by field; paths in
            their text form.
        error: why `panel` is None. None: it is not.
    """

    entity_id: str
    panel: Panel | None
    restated: Panel | None = None
    missing: Missing = field(factory=dict)
    error: AsyncfinError | None = None


def answer_with(panel: Panel, question: Question) -> EntityAnswer:
    """Return the answer to a question with `known_only`, given its panel."""
    return EntityAnswer(question.entity_id, panel, missing=question.missing(panel.catalogue))
