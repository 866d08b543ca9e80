"""Who asks: accounts, and the tokens that stand for them (spec 5)."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import field, frozen
from attrs.validators import ge, gt, optional

DATASETS_READ = "datasets:read"
USAGE_READ = "usage:read"
PERMISSIONS = (DATASETS_READ, USAGE_READ)


def _ids(ids: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """A text is one id, not its letters."""
    if ids is None:
        return None
    return (ids,) if isinstance(ids, str) else tuple(ids)


@frozen
class Account:
    """An account: its tokens share one allowance (spec 5.5).

    allowance: data requests a UTC day; None: no limit.
    rate, burst: data requests a second, and how many at once; rate None: no limit.
    entities: those it can see, one or several; None: all. access: False when the account lacks access (403).
    """

    name: str
    allowance: int | None = field(default=None, validator=optional(ge(0)))
    rate: float | None = field(default=None, validator=optional(gt(0)))
    burst: int = field(default=1, validator=ge(1))
    entities: tuple[str, ...] | None = field(default=None, converter=_ids)
    access: bool = True


@frozen
class Token:
    """What a token stands for; audience "rest" is the REST API."""

    account: str
    permissions: tuple[str, ...]
    audience: str

    def grants(self, permission: str, base_url: str) -> bool:
        """A permission is known by its short name and by its full identifier (spec 4.4)."""
        return any(held.removeprefix(base_url).lstrip("/") == permission for held in self.permissions)
