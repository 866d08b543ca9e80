"""Functions that make the clients of workers: these import them by their names."""

import os
import signal
from contextlib import suppress
from pathlib import Path

from asyncfin import Client, RedisBucket, Retry, TokenBucket
from asyncfin.events import Event, RequestFinished


def make_killing_client() -> Client:
    """A client that kills its process at the query whose number a file contains, once."""
    file = Path(os.environ["ASYNCFIN_KILL_AT"])

    def observe(event: Event) -> None:
        if isinstance(event, RequestFinished) and event.operation == "query" and _is_last(file):
            os.kill(os.getpid(), signal.SIGKILL)

    return Client(
        os.environ["ASYNCFIN_BASE_URL"], os.environ["ASYNCFIN_TOKEN"], max_in_flight=2, observers=[observe]
    )


def _is_last(file: Path) -> bool:
    """Count down by one, and return whether that came to nothing; the file is gone then."""
    import fcntl

    with suppress(FileNotFoundError), file.open("r+") as counting:
        fcntl.flock(counting, fcntl.LOCK_EX)  # two workers must not both be the last
        number = int(counting.read()) - 1
        counting.seek(0)
        counting.truncate()
        counting.write(str(number))
        if number == 0:
            file.unlink()
        return number == 0
    return False


def make_client_after_another() -> Client:
    """A client of a worker that comes after one which has put a file in place."""
    Path(os.environ["ASYNCFIN_MOVED"]).replace(os.environ["ASYNCFIN_MOVED_TO"])
    return Client.from_env()


def make_client_of_whole() -> Client:
    """A client that takes the whole rate for its own."""
    rate, burst = float(os.environ["ASYNCFIN_RATE"]), int(os.environ["ASYNCFIN_BURST"])
    return Client.from_env(bucket=TokenBucket(rate, burst))


def make_client_of_share() -> Client:
    """A client with its share of the rate."""
    rate = float(os.environ["ASYNCFIN_RATE"]) / int(os.environ["ASYNCFIN_WORKERS"])
    return Client.from_env(bucket=TokenBucket(rate))


def make_client_of_redis() -> Client:
    """A client whose bucket is that of all workers."""
    rate, burst = float(os.environ["ASYNCFIN_RATE"]), int(os.environ["ASYNCFIN_BURST"])
    bucket = RedisBucket(os.environ["ASYNCFIN_REDIS"], account="workers", rate=rate, burst=burst)
    return Client.from_env(bucket=bucket)


def make_impatient_client() -> Client:
    """A client to which a pause of a second is a used-up allowance."""
    return Client.from_env(retry=Retry(max_retry_after=0.5))


def make_nothing() -> None:
    """What is no client."""


async def make_later() -> Client:
    """A client that would have to be awaited."""
    return Client.from_env()
