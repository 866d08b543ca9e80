"""What is said of several entities that failed, or have nothing, and the exit code."""

from collections.abc import Mapping

from asyncfin import Comparison
from asyncfin.cli.entities import Names
from asyncfin.cli.exits import EntitiesFailedError
from asyncfin.cli.streams import print_error
from asyncfin.errors import AsyncfinError, SelectionError, ends_all
from asyncfin.extraction.report import Failure
from asyncfin.read.several import nothing_of


def check_all(comparison: Comparison, names: Names) -> None:
    """Print a line for each entity that failed, and raise an error if one did, or for
    an unknown id.

    Raises:
        EntitiesFailedError: some failed.
        SelectionError: none has anything of the question, or no entity has one of the
            ids or words.
    """
    entities = len(comparison) + len(comparison.failed)
    check_failed(comparison.failed, comparison.ended, entities, names)
    if not any(map(len, comparison)):
        raise nothing_of(comparison)
    if unknown := comparison.unknown:
        near = next(iter(comparison)).catalogue.explain(unknown)
        raise SelectionError(
            f"none of the {entities} entities has all of the question; {near}",
            missing=unknown,
        )


def check_failed(
    failed: Mapping[str, AsyncfinError],
    ended: AsyncfinError | None,
    entities: int,
    names: Names,
) -> None:
    """Print a line for each entity that failed by itself, and raise an error if there
    is one.

    Raises:
        EntitiesFailedError: some failed.
        AsyncfinError: what ended the reading.
    """
    by_itself = {
        each: error
        for each, error in failed.items()
        if not ends_all(error, waits=False)
    }
    for entity_id, error in by_itself.items():
        print_error(f"asyncfin: {names.named(entity_id)}: {error}")
    if ended is not None:
        raise ended
    if by_itself:
        raise EntitiesFailedError(
            [Failure.of(error) for error in by_itself.values()], entities
        )
