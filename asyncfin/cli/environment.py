"""What processes of a user share: the cache and the bucket that the environment
names.
"""

import os
import re

from asyncfin.cache.file import FileCache
from asyncfin.cli.exits import UsageError, prefix_errors
from asyncfin.cli.options import require
from asyncfin.pacing.bucket import TokenBucket
from asyncfin.pacing.file import FileBucket
from asyncfin.pacing.redis import RedisBucket


def cached() -> FileCache | None:
    """Return the cache that ASYNCFIN_CACHE and ASYNCFIN_ACCOUNT name; None: none is
    named.
    """
    if not (folder := os.environ.get("ASYNCFIN_CACHE")):
        return None
    with prefix_errors("ASYNCFIN_CACHE"):
        return FileCache(folder, account=os.environ.get("ASYNCFIN_ACCOUNT") or None)


def shared_place() -> str | None:
    """Return the path or URL of the bucket that ASYNCFIN_BUCKET names; None: none is
    named.
    """
    return os.environ.get("ASYNCFIN_BUCKET") or None


def paced(
    rate: float | None, daily_budget: float | None
) -> TokenBucket | FileBucket | RedisBucket:
    """Return the bucket that ASYNCFIN_BUCKET shares with other processes, or a separate
    one.
    """
    if (place := shared_place()) is None:
        return TokenBucket(rate, daily_budget=daily_budget)
    with prefix_errors("ASYNCFIN_BUCKET"):
        # Anything else is the path of a folder on this machine.
        if not re.match(r"(rediss?|unix)://", place):
            return FileBucket(place, rate, daily_budget=daily_budget)
        account = os.environ.get("ASYNCFIN_ACCOUNT")
        if not account:
            raise UsageError(
                "ASYNCFIN_BUCKET is the URL of a Redis server: name the account by "
                "ASYNCFIN_ACCOUNT"
            )
        require("redis", "redis", "ASYNCFIN_BUCKET")
        return RedisBucket(place, account=account, rate=rate, daily_budget=daily_budget)
