"""A bucket shared by machines: its state is in a Redis server, whose clock they use.

`_SCRIPT` is `asyncfin.pacing.shared.SharedState` in Lua: the server runs it atomically,
so an operation needs no lock. A test proves the two equal.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import quote

from msgspec.structs import replace

from asyncfin import checks
from asyncfin.clock import utc_now
from asyncfin.errors import AllowanceExhaustedError, BucketUnavailableError
from asyncfin.events import BucketStats
from asyncfin.pacing.bucket import Bucket, Parameters
from asyncfin.pacing.pace import Allowance, Change
from asyncfin.pacing.shared import EPSILON, Outcome, SharedBucket, SharedState
from asyncfin.redis import RedisClients
from asyncfin.tasks import cancel_and_wait, unless_silent

if TYPE_CHECKING:
    from redis.asyncio import Redis

# A server that is away is contacted again after this many seconds, where a fallback
# paces.
_AWAY = 2.0
# How long the first connection of a process may take, and a later one in the
# background.
_CONNECTION = 5.0

_log = logging.getLogger("asyncfin")

# Arguments: the time or '', the kind of a `Change`, EPSILON, rate, burst, daily budget,
# and the amount of the `Change`. Texts, since Redis cuts numbers to integers. 0 stands
# for never, and for None.
_SCRIPT = """
local DAY = 86400
local now, kind, epsilon = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local rate, burst, budget = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local amount = tonumber(ARGV[7])
if now == nil then
  local time = redis.call('TIME')
  now = tonumber(time[1]) + tonumber(time[2]) / 1000000
end
local NAMES = {
  'full_at', 'paused_until', 'exhausted_until', 'day', 'spent',
  'rate', 'burst', 'daily_budget'
}
local stored = redis.call('HMGET', KEYS[1], unpack(NAMES))
for index = 1, #NAMES do stored[index] = tonumber(stored[index] or '0') end
local full_at, paused_until, exhausted_until, day, spent = unpack(stored, 1, 5)
if kind == 'look' and stored[7] > 0 then rate, burst = stored[6], stored[7] end

-- As SharedState does when it is made.
local today = math.floor(now / DAY)
local latest = now + DAY
local jumped = paused_until > latest or exhausted_until > latest or day > today + 1
paused_until = math.min(paused_until, latest)
exhausted_until = math.min(exhausted_until, latest)
if rate > 0 then
  full_at = math.min(full_at, math.max(now, paused_until) + burst / rate)
end
if day < today then day, spent = today, 0 elseif day > today + 1 then day = today end

local granted = false
if kind == 'take' then
  local moment = paused_until
  if rate > 0 then moment = math.max(moment, full_at - (burst - 1) / rate) end
  local is_within = exhausted_until <= now and (budget == 0 or spent + 1 <= budget)
  granted = moment <= now + epsilon and (amount == 0 or is_within)
  if granted then
    if rate > 0 then full_at = math.max(full_at, now) + 1 / rate end
    spent = spent + amount
    stored[6], stored[7], stored[8] = rate, burst, budget
  end
elseif kind == 'give_back' then
  if rate > 0 then
    full_at = math.max(full_at - 1 / rate, paused_until + (burst - 1) / rate)
  end
  spent = math.max(0, spent - amount)
elseif kind == 'unspend' then
  if math.floor((now - amount) / DAY) == today then spent = math.max(0, spent - 1) end
elseif kind == 'spend' then
  spent = spent + amount
elseif kind == 'pause' then
  local till = now + math.min(amount, DAY)
  if till > math.max(now, paused_until) then
    paused_until = till
    if rate > 0 then full_at = math.max(full_at, till + (burst - 1) / rate) end
  end
elseif kind == 'exhaust' then
  exhausted_until = math.max(exhausted_until, now + math.min(amount, DAY))
elseif kind == 'resume' then
  if paused_until > now then
    paused_until = now
    if rate > 0 then full_at = math.min(full_at, now + (burst - 1) / rate) end
  end
  exhausted_until = 0
end

local values = {
  full_at, paused_until, exhausted_until, day, spent, unpack(stored, 6, 8)
}
local reply = {granted and '1' or '0', jumped and '1' or '0'}
reply[3] = string.format('%.17g', now)
local pairs_of = {}
for index = 1, #NAMES do
  local text = string.format('%.17g', values[index])
  pairs_of[2 * index - 1], pairs_of[2 * index] = NAMES[index], text
  reply[#reply + 1] = text
end
if kind ~= 'look' then
  redis.call('HSET', KEYS[1], unpack(pairs_of))
  -- A bucket that was not used for a week is dropped.
  redis.call('EXPIRE', KEYS[1], 604800)
end
return reply
"""


class RedisBucket(SharedBucket):
    """Paces the requests of all processes on all machines that name the same account.

    It promises what `FileBucket` promises, by the clock of the Redis server, as long as
    no fallback paces.

    Args:
        redis: the URL of the server, or a `redis.asyncio.Redis`, which stays open when
            the bucket is closed.
        account: names the account whose allowance is shared.
        rate: as in `FileBucket`.
        burst: as in `FileBucket`.
        daily_budget: as in `FileBucket`.
        fallback: the bucket that paces this process while the server can't be used. The
            server is contacted again in the background, every 2 seconds; once it
            responds, the requests that were spent today are added to the day's
            spending. None: waiting requests get a BucketUnavailableError, and nothing
            is sent.
        silent: for how many seconds the server may take for the response to one
            command. Without a fallback, the first connection may take 5 seconds.
        microseconds: returns Unix time in place of the server's clock, in microseconds;
            for tests.

    Raises:
        ArgumentError: an argument is not as described.
        ImportError: the package redis is not installed (extra `redis`).
    """

    def __init__(
        self,
        redis: str | Redis,
        *,
        account: str,
        rate: float | None = None,
        burst: float = 1,
        daily_budget: float | None = None,
        fallback: Bucket | None = None,
        silent: float = 0.5,
        microseconds: Callable[[], int] | None = None,
    ) -> None:
        checks.text("a text that names the account")("account", account)
        checks.instance_of(Bucket).optional()("fallback", fallback)
        super().__init__(Parameters.check(rate, burst, daily_budget))
        self._account = account
        self._key = f"asyncfin:bucket:{quote(account, safe='')}"
        self._clients = RedisClients(redis)
        self._fallback = fallback
        self._silent = checks.positive_seconds("silent", silent)
        self._microseconds = microseconds
        self._is_away = False  # the server does not respond, and the fallback paces
        # What the fallback has granted today, to be added to the shared spending.
        self._owed = Allowance(None)

    def _begin(self) -> None:
        super()._begin()
        self._retry: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        # Without the URL, which may contain a password.
        return f"RedisBucket(account={self._account!r}, {self._parameters})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a RedisBucket cannot be pickled: its URL may contain a password"
        )

    async def _run(self, change: Change) -> Outcome:
        fallback = self._fallback
        if fallback is None:
            return await self._evaluate(change)
        await self._change_fallback(fallback, change)
        if not self._is_away:
            try:
                return await self._evaluate(change)
            except BucketUnavailableError as error:
                if not self._is_away:  # else another request has met it
                    _log.warning("%s: the fallback paces for now", error)
                self._is_away = True
        self._contact_server()
        if change.kind == "take":
            # Not for longer: by then the server may be back, or the waiter have left.
            try:
                async with asyncio.timeout(_AWAY):
                    await fallback.acquire(counts=bool(change.amount))
            except TimeoutError:
                return False, None
            except AllowanceExhaustedError as error:
                self._reject(error, only_counting=True)
                return False, None
        self._owed.apply(change, utc_now().timestamp())
        self._contact_server()  # it may be back, and this grant be added
        return change.kind == "take", None

    def _contact_server(self) -> None:
        """Contact the server again, whatever ended an earlier task: in the background,
        so that no request waits for it.
        """
        if self._retry is None or self._retry.done():
            self._retry = asyncio.create_task(self._return_to_server())

    async def _change_fallback(self, fallback: Bucket, change: Change) -> None:
        """Let the fallback pace as the server would, whether or not it paces now.

        Grants return to it while it paces.
        """
        now = asyncio.get_running_loop().time()
        kind, amount = change
        if kind == "pause":
            await fallback.refused(sent_at=now, retry_after=amount)
        elif kind == "exhaust":
            await fallback.exhaust(amount)
        # A user's bucket need not have this.
        elif kind == "resume" and hasattr(fallback, "resume"):
            await fallback.resume()
        elif kind == "unspend" and self._is_away:
            await fallback.unspend(sent_at=now - amount)
        # A grant that does not count stays used: `give_back` would take it off the
        # spending.
        elif kind == "give_back" and amount and self._is_away:
            await fallback.give_back()

    def stats(self) -> BucketStats:
        return replace(super().stats(), fallback=self._is_away)

    async def aclose(self) -> None:
        await super().aclose()
        if self._retry is not None and self._loop is asyncio.get_running_loop():
            await cancel_and_wait([self._retry])
        await self._clients.aclose()

    async def _return_to_server(self) -> None:
        """Add what the fallback has granted today, once the server responds."""
        # A request may wait for the fallback when the server returns: its grant is
        # added later.
        while self._is_away or self._owed.spending:
            await asyncio.sleep(_AWAY)
            self._owed.begin_day(utc_now().timestamp())
            spending = self._owed.spending
            with suppress(BucketUnavailableError):
                await self._evaluate(Change("spend", spending))
                self._owed.spending = max(0.0, self._owed.spending - spending)
                was_away, self._is_away = self._is_away, False
                if was_away:
                    _log.warning(
                        "the Redis server of %s responds again; %g requests granted by"
                        " the fallback were added",
                        self._key,
                        spending,
                    )

    async def _evaluate(self, change: Change) -> tuple[bool, SharedState]:
        """Run the script, and return whether a request was granted, and the state."""
        from redis.exceptions import RedisError

        now = "" if self._microseconds is None else repr(self._microseconds() / 1e6)
        numbers = [EPSILON, *self._parameters.numbers(), float(change.amount)]
        script = (await self._clients.get()).register_script(_SCRIPT)
        # Connecting takes several round trips. In the background it has the time.
        is_connecting = self._fallback is None and self._state is None
        is_patient = self._is_away or is_connecting
        limit = max(_CONNECTION, self._silent) if is_patient else self._silent
        try:
            async with unless_silent(limit):
                reply = await script(
                    [self._key], [now, change.kind, *map(repr, numbers)]
                )
        except (RedisError, OSError) as error:
            # The text of the server's errors may contain a URL with a password.
            reason = error if isinstance(error, TimeoutError) else type(error).__name__
            raise BucketUnavailableError(
                f"the Redis server of {self._key} can't be used: {reason}"
            ) from None
        is_granted, has_jumped, state_time, *values = map(float, reply)
        state = SharedState(
            values, self._parameters, state_time, is_look=change.kind == "look"
        )
        state.clock_jumped = bool(has_jumped)
        return bool(is_granted), state
