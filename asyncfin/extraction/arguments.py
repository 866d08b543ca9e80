"""Arguments that a run and its estimate share, refused by name before anything is sent."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable

from asyncfin.client import Client
from asyncfin.errors import SelectionError
from asyncfin.extraction.folder import Folder
from asyncfin.model import checks
from asyncfin.wire.protocol import check_entity_id


def checked_ids(entity_ids: Iterable[str]) -> tuple[str, ...]:
    """Return distinct entity ids, in their order.

    Raises:
        SelectionError: one is no entity id, or there is none.
    """
    if isinstance(entity_ids, str):
        entity_ids = (entity_ids,)
    if not isinstance(entity_ids, Iterable):
        raise SelectionError(f"entity_ids must be a collection of entity ids, not {entity_ids!r}")
    ids = tuple(entity_ids)
    for each in ids:
        check_entity_id(each)
    if not ids:
        raise SelectionError("entity_ids must name at least one entity")
    return tuple(dict.fromkeys(ids))


async def checked_folder(client: Client, to: str | os.PathLike[str], **flags: bool) -> Folder:
    """Return the places of an extraction, if it is asked for rightly.

    Raises:
        SelectionError: an argument is not as said.
    """
    checks.instance_of(Client)("client", client)
    for name, flag in flags.items():
        checks.flag(name, flag)
    if not isinstance(to, (str, os.PathLike)) or not os.fspath(to):
        raise SelectionError(f"to must be the path of a folder, not {to!r}")
    try:
        return await asyncio.to_thread(Folder.at, to)  # it looks at the disk
    except SelectionError as error:
        raise SelectionError(f"to: {error}") from None
