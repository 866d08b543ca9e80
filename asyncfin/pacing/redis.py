"""A bucket shared by machines: its state is in a Redis server, whose clock all of them use.

`_SCRIPT` is `asyncfin.pacing.ledger` in Lua: the server runs it atomically, so an operation needs no lock.
Times in it are whole microseconds, sent as text: Redis cuts numbers in replies to integers, and Lua's own
conversion keeps 14 digits. The learned rate has a separate key: it is changed here, in Python, and replaced
there unless another process has replaced it in between.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64decode, b64encode
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha1
from math import inf
from typing import TYPE_CHECKING, Any, NoReturn, cast
from urllib.parse import quote

from attrs import evolve

from asyncfin import checks
from asyncfin.clock import utc_now
from asyncfin.errors import AllowanceExhaustedError, BucketUnavailableError
from asyncfin.pacing.booking import SharedBucket, SharedLedger
from asyncfin.pacing.bucket import Bucket, Parameters
from asyncfin.pacing.learned import Measure
from asyncfin.pacing.ledger import EPSILON, LATE, Booking, Ledger, State
from asyncfin.redis import RedisClient, RedisClients
from asyncfin.tasks import PerLoop, SingleFlight, cancel_and_wait, running_loop, unless_silent

if TYPE_CHECKING:
    from redis.asyncio import Redis

# With a fallback, a server that is away is not contacted for this long, in seconds.
_AWAY = 2.0
# How long requests wait for the first connection where there is no fallback.
_FIRST_CONNECTION = 5.0
# How long an attempt to connect may take, and how many there may be at a time.
_CONNECTION = 30.0
_ATTEMPTS = 5
# Where the reply has the parameters that were replaced.
_NOTE = 5

_log = logging.getLogger("asyncfin")

_SCRIPT = """
local key, learned_key = KEYS[1], KEYS[2]
local op = ARGV[1]
local DAY, SET_BACK = 86400000000, 1000000  -- all times are microseconds
local EPSILON, LATE = tonumber(ARGV[2]), tonumber(ARGV[3])
local function number(text) if text and text ~= '' then return tonumber(text) end end
local function text(value)
  if value == nil then return '' end
  return string.format('%.0f', value)
end
local function exact(value)
  if value == nil then return '' end
  return string.format('%.17g', value)
end

-- The clock is the server's, or a test's.
local now = number(ARGV[4])
if now == nil then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end
local wall = now

local v = redis.call('HMGET', key, 'given_rate', 'given_budget', 'rate', 'burst', 'full_at', 'paused_until',
  'epoch', 'date', 'began', 'spent', 'exhausted_until', 'version', 'now', 'given_burst', 'generation',
  'inherited', 'measure_began', 'measure_second', 'measure_before', 'measure_lately')
local given_rate, given_budget, rate, burst = number(v[1]), number(v[2]), number(v[3]), number(v[4])
local full_at, paused_until, epoch = number(v[5]) or 0, number(v[6]) or 0, number(v[7])
local date, began, spent = number(v[8]) or 0, number(v[9]) or 0, number(v[10]) or 0
local exhausted_until, version, given_burst = number(v[11]), number(v[12]) or 0, number(v[14])
local generation, inherited = number(v[15]), number(v[16]) or 0
local measure_began, measure_second = number(v[17]), number(v[18])
local measure_before, measure_lately = number(v[19]) or 0, number(v[20]) or 0
local step = (number(v[13]) or 0) - now
if step > SET_BACK then
  full_at, paused_until, began, epoch = full_at - step, paused_until - step, began - step, epoch + 1
  if measure_second then
    measure_began, measure_second = measure_began - step, measure_second - step
  end
elseif step > 0 then
  now = now + step
end

-- What the caller last saw: its parameters, version, date, spent, exhausted_until, generation.
local seen_version, seen_date = tonumber(ARGV[8]), tonumber(ARGV[9])
local seen_spent, seen_exhausted, seen_generation = tonumber(ARGV[10]), number(ARGV[11]), number(ARGV[12])
if epoch == nil then
  given_rate, given_burst, given_budget = number(ARGV[5]), number(ARGV[6]), number(ARGV[7])
  rate, burst, epoch = given_rate, given_burst, now
  generation = math.max(now, (seen_generation or 0) + 1)
end
-- The server has lost its state since, or has an older one. A new generation begins: it inherits the most
-- that any process saw spent in the one before, and its own spending is added to that.
if seen_generation == generation and version < seen_version then
  generation, inherited = math.max(now, generation + 1), spent
end
if seen_generation and seen_generation ~= generation then
  if seen_date > date then date, began, spent, inherited = seen_date, 0, 0, 0 end
  if seen_date == date and seen_spent > inherited then
    spent, inherited = spent + seen_spent - inherited, seen_spent
  end
  if seen_exhausted then exhausted_until = math.max(exhausted_until or 0, seen_exhausted) end
  version = math.max(version, seen_version)
end

-- From here on as in DailyBudget, GCRA and Ledger, under their names.
local function round(value) return math.floor(value + 0.5) end
local function cost(weight) return round(weight / rate * 1000000) end
local function today() return math.max(math.floor(wall / DAY), date) end
local function spent_today() if today() == date then return spent end return 0 end
local function held(at)
  if rate == nil then return burst end
  return burst - math.max(0, full_at - math.max(at, paused_until)) * rate / 1000000
end
local function resume_at(weight)
  if exhausted_until and wall >= exhausted_until then exhausted_until = nil end
  if given_budget == nil or spent_today() + weight <= given_budget then return exhausted_until end
  return math.max((today() + 1) * DAY, exhausted_until or 0)
end
local function measure(weight)
  if measure_second == nil or now - measure_second >= 1000000 then
    if measure_second and now - measure_second < 2000000 then
      measure_began, measure_before = measure_second, measure_lately
    else
      measure_began, measure_before = now, 0
    end
    measure_second, measure_lately = now, 0
  end
  measure_lately = measure_lately + weight
end
local function spend_day(weight)
  if today() ~= date then date, began, spent, inherited = today(), now, 0, 0 end
  spent = spent + weight
end
local function unspend_day(weight, at) if at >= began then spent = math.max(0, spent - weight) end end
local function gcra_moment(weight)
  if rate == nil then return paused_until end
  local moment = full_at
  if weight < burst then moment = moment - round((burst - weight) / rate * 1000000) end
  return math.max(moment, paused_until)
end
local function gcra_spend(weight, at)
  if rate ~= nil then full_at = math.max(full_at, at) + cost(weight) end
end
local function gcra_give_back(weight)
  if rate ~= nil then
    full_at = math.max(full_at - cost(weight), paused_until + round((burst - 1) / rate * 1000000))
  end
end
local function set_rate(new_rate, new_burst)
  if new_rate == nil then rate, burst, full_at = nil, new_burst, 0 return end
  if paused_until <= now then paused_until = 0 end
  local at = math.max(now, paused_until)
  local level = held(at)
  rate, burst = new_rate, new_burst
  full_at = at + round((burst - level) / rate * 1000000)
end

local granted, moment, finish, resume, note = 0, 0, nil, nil, ''
local weight, counts = number(ARGV[13]), ARGV[14] == '1'
local function grant()
  if rate == nil then measure(weight) end
  if counts then spend_day(weight) end
  granted, moment = granted + 1, now
end
local function reserve(most)
  for _ = 1, most do
    local refused = counts and resume_at(weight) or nil
    local at = math.max(now, gcra_moment(weight))
    local is_free = at <= now + EPSILON
    if granted > 0 and (refused or not is_free) then return end
    resume = refused
    if resume then return end
    gcra_spend(weight, at)
    if not is_free then moment = at return end
    grant()
  end
end
local function cancel(booked_end, booked_epoch)
  if booked_epoch == epoch and booked_end == full_at then gcra_give_back(weight) end
end

local function pause(time)
  local till = now + time
  if till > math.max(now, paused_until) then
    epoch = epoch + 1
    if rate ~= nil then
      full_at = math.min(full_at, now + round(burst / rate * 1000000))
      full_at = math.max(full_at, till + round((burst - 1) / rate * 1000000))
    end
    paused_until = till
  end
end

if op == 'reserve' then
  reserve(tonumber(ARGV[15]))
elseif op == 'confirm' then
  local booked_moment, booked_end, booked_epoch = tonumber(ARGV[15]), tonumber(ARGV[16]), tonumber(ARGV[17])
  if counts then resume = resume_at(weight) end
  if resume then
    cancel(booked_end, booked_epoch)
  elseif booked_epoch ~= epoch
      or (rate ~= nil and now > booked_moment + math.max(weight / rate * 1000000, LATE)) then
    reserve(1)
  elseif rate ~= nil and booked_moment > now + EPSILON then
    moment, finish = booked_moment, booked_end
  else
    grant()
  end
elseif op == 'cancel' then
  cancel(tonumber(ARGV[16]), tonumber(ARGV[17]))
elseif op == 'give_back' then
  if held(now) > -0.001 then gcra_give_back(weight) end
  if counts then unspend_day(weight, tonumber(ARGV[15])) end
elseif op == 'unspend' then
  unspend_day(weight, tonumber(ARGV[15]))
elseif op == 'pause' then
  pause(tonumber(ARGV[15]))
elseif op == 'exhaust' then
  local till = wall + tonumber(ARGV[15])
  exhausted_until = math.max(till, exhausted_until or till)
elseif op == 'resume' then
  if paused_until > now then
    epoch, paused_until = epoch + 1, 0
    if rate ~= nil then full_at = math.min(full_at, now + round((burst - 1) / rate * 1000000)) end
  end
  exhausted_until = nil
elseif op == 'spend' then  -- weight, how much of it counts, and the time in which it was granted
  if rate ~= nil then
    local charged = math.min(burst, math.max(0, weight - rate * tonumber(ARGV[16]) / 1000000))
    local furthest = math.max(now, paused_until) + round((2 * burst - 1) / rate * 1000000)
    full_at = math.max(full_at, math.min(math.max(full_at, now) + cost(charged), furthest))
  end
  if tonumber(ARGV[15]) > 0 then spend_day(tonumber(ARGV[15])) end
elseif op == 'configure' then
  local new_rate, new_burst, new_budget = number(ARGV[5]), number(ARGV[6]), number(ARGV[7])
  if new_rate ~= given_rate or new_burst ~= given_burst or new_budget ~= given_budget then
    note = exact(given_rate) .. ' ' .. exact(given_burst) .. ' ' .. exact(given_budget)
    if new_rate ~= nil or given_rate ~= nil then
      redis.call('DEL', learned_key)
      set_rate(new_rate, new_burst)
    else
      set_rate(rate, new_burst)
    end
    given_rate, given_burst, given_budget = new_rate, new_burst, new_budget
  end
elseif op == 'learn' then
  if (redis.call('GET', learned_key) or '') == ARGV[15] then
    redis.call('SET', learned_key, ARGV[16], 'EX', 604800)
    set_rate(number(ARGV[17]), burst)
    pause(tonumber(ARGV[18]))
  end
end

local open_at = resume_at(1)
if op ~= 'look' then
  version = version + 1
  redis.call('HSET', key, 'given_rate', exact(given_rate), 'given_burst', exact(given_burst),
    'given_budget', exact(given_budget), 'rate', exact(rate), 'burst', exact(burst), 'full_at', text(full_at),
    'paused_until', text(paused_until), 'epoch', text(epoch), 'date', text(date), 'began', text(began),
    'spent', exact(spent), 'exhausted_until', text(exhausted_until), 'version', text(version),
    'now', text(now), 'generation', text(generation), 'inherited', exact(inherited),
    'measure_began', text(measure_began), 'measure_second', text(measure_second),
    'measure_before', exact(measure_before), 'measure_lately', exact(measure_lately))
  -- A bucket that was not used for a week is dropped.
  redis.call('EXPIRE', key, 604800)
end
return {text(granted), text(moment), text(finish or full_at), text(epoch), text(resume), note, text(version),
  text(today()), exact(spent_today()), text(exhausted_until), text(generation), text(now), text(wall),
  exact(rate), exact(burst), exact(given_budget), exact(given_rate), exact(held(now)), text(paused_until),
  text(open_at), redis.call('GET', learned_key) or '', text(measure_began), text(measure_second),
  exact(measure_before), exact(measure_lately)}
"""


_SHA = sha1(_SCRIPT.encode(), usedforsecurity=False).hexdigest()


class RedisBucket(SharedBucket):
    """Paces the requests of all processes, on any number of machines, that name the same account.

    It promises what `FileBucket` promises, by the clock of the Redis server, as long as no fallback paces.

    Args:
        redis: the URL of the server, or a `redis.asyncio.Redis`, which stays open when the bucket is closed.
        account: names the account whose allowance is shared.
        rate: as in `FileBucket`.
        burst: as in `FileBucket`.
        daily_budget: as in `FileBucket`.
        fallback: the bucket that paces this process while the server does not respond within `silent`.
            The server is retried in the background every 2 seconds. When it responds, what the fallback has
            granted is charged: to the day in full, to the pace less what was earned during the outage, and at
            most one burst. None: waiting requests get a BucketUnavailableError, and nothing is sent.
        silent: for how many seconds the server may take for the response to one command on an open
            connection. Connecting is not part of it: without a fallback, requests wait up to 5 seconds for
            the first connection.
        microseconds: returns Unix time in place of the server's clock, in microseconds; for tests.

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
        self._account = account
        parameters = Parameters.checked(rate, burst, daily_budget)
        ledger = RedisLedger(
            RedisClients(redis),
            account,
            parameters,
            fallback,
            microseconds,
            checks.positive_seconds("silent", silent),
        )
        super().__init__(ledger, parameters)

    def __repr__(self) -> str:
        # Without the URL, which may contain a password.
        return f"RedisBucket(account={self._account!r}, {self._given})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a RedisBucket cannot be pickled: its URL may contain a password")


class RedisLedger(SharedLedger):
    def __init__(
        self,
        clients: RedisClients,
        account: str,
        parameters: Parameters,
        fallback: Bucket | None,
        microseconds: Callable[[], int] | None,
        silent: float,
    ) -> None:
        self._clients = clients
        self._silent = silent
        # The client that has an open connection, on which the script is loaded; and how long that took.
        self._connected: RedisClient | None = None
        self._connected_in = 0.0
        self._was_connected = False
        # The attempts to connect that have not ended, the newest last; when that began, and the first.
        self._attempts: list[asyncio.Task[None]] = []
        self._attempted_at = self._connecting_since = -inf
        self._closed = False
        # One command at a time: another one would have to wait for another connection.
        self._turns = PerLoop(asyncio.Lock)
        name = f"asyncfin:bucket:{{{quote(account, safe='')}}}"
        self._keys = [name, f"{name}:learned"]  # one {tag}, so that a cluster keeps both in one place
        self._parameters = parameters
        self._fallback = fallback
        self._microseconds = microseconds
        self._started = False
        # Version, date, spent, exhausted_until and generation as this process last saw them stored: texts,
        # which go back unchanged, so no rounding adds up.
        self._seen: tuple[str, ...] = ("0", "0", "0", "", "")
        self._state: State | None = None
        # Loop time at which the server stopped responding; None: it responds.
        self._away_since: float | None = None
        self._retry_at = -inf
        self._retrying: asyncio.Task[None] | None = None
        # How many requests the fallback has granted in this outage.
        self._granted_by_fallback = 0
        # What the fallback has granted and is not booked yet, and how much of it counts.
        self._owed, self._owed_counted = 0.0, 0.0
        self._catching_up: SingleFlight[None, None] = SingleFlight()

    async def reserve(self, weight: float, counts: bool, most: int) -> tuple[Booking, State]:
        return await self._or_fallback("reserve", weight, counts, str(most))

    async def confirm(self, booked: Booking, weight: float, counts: bool) -> tuple[Booking, State]:
        return await self._or_fallback("confirm", weight, counts, *_booking_arguments(booked))

    async def cancel(self, booked: Booking, weight: float) -> State:
        return await self._request("cancel", weight, False, *_booking_arguments(booked))

    async def give_back(self, weight: float, counts: bool, moment: float | None) -> State:
        if self._settle(moment, weight, weight if counts else 0.0):
            return self._stale()
        return await self._request("give_back", weight, counts, _micros(moment or 0.0))

    async def unspend(self, weight: float, moment: float | None) -> State:
        if self._settle(moment, 0.0, weight):
            return self._stale()
        return await self._request("unspend", weight, True, _micros(moment or 0.0))

    async def state(self, *, now: bool = False) -> State:
        return await self._request("look", now=now)

    async def inspect(self) -> State:
        return (await self._run("look", "1.0", "1"))[1]

    async def pause(self, seconds: float) -> State:
        await self._pause_fallback(seconds)
        return await self._request("pause", 1, True, _micros(seconds), now=True)

    async def exhaust(self, seconds: float) -> State:
        if self._fallback is not None:
            await self._fallback.exhaust(seconds)
        return await self._request("exhaust", 1, True, _micros(min(seconds, 1e9)), now=True)

    async def resume(self) -> State:
        # A user's own bucket need not have this.
        if (resume := getattr(self._fallback, "resume", None)) is not None:
            await resume()
        return (await self._run("resume", "1.0", "1"))[1]

    async def learn(self, known: bytes, learned: bytes, rate: float | None, pause: float) -> State | None:
        given = "" if rate is None else repr(rate)
        state = await self._request("learn", 1, True, _text(known), _text(learned), given, _micros(pause))
        if state.stale:
            return state
        if state.learned != learned:
            return None
        if pause:
            await self._pause_fallback(pause)
        return state

    async def aclose(self) -> None:
        self._closed = True
        loop, tasks = asyncio.get_running_loop(), self._attempts
        if self._retrying is not None:
            tasks = [self._retrying, *tasks]
        await cancel_and_wait([task for task in tasks if task.get_loop() is loop])
        self._connected = None
        await self._clients.aclose()

    @property
    def uses_fallback(self) -> bool:
        return self._away_since is not None

    def unbooked(self, loop_time: float) -> tuple[float, float]:
        debt = 0.0
        if self._state is not None and self._state.rate is not None and self._away_since is not None:
            earned = self._state.rate * (loop_time - self._away_since)
            debt = min(self._state.burst, max(0.0, self._owed - earned))
        return debt, self._owed_counted

    async def _pause_fallback(self, seconds: float) -> None:
        if self._fallback is not None:
            now = asyncio.get_running_loop().time()
            await self._fallback.refused(sent_at=now, retry_after=seconds)

    def _settle(self, moment: float | None, weight: float, counted: float) -> bool:
        """Take a grant off what the fallback owes; return False if the server has to know of it."""
        if not self._owed or (moment is not None and self._away_since is None):
            return False
        self._owed = max(0.0, self._owed - weight)
        self._owed_counted = max(0.0, self._owed_counted - counted)
        return True

    async def _or_fallback(
        self, op: str, weight: float, counts: bool, *arguments: str
    ) -> tuple[Booking, State]:
        if (outcome := await self._tried(op, weight, counts, *arguments)) is not None:
            return outcome
        assert self._fallback is not None
        booking = Booking(granted=1, moment=0.0, end=0.0, epoch=-1, resume_at=None)
        try:
            await self._fallback.acquire(weight, counts=counts)
        except AllowanceExhaustedError as error:
            wall = (error.at or utc_now()).timestamp()
            resume_at = error.resume_at.timestamp()
            return evolve(booking, granted=0, resume_at=resume_at), evolve(self._stale(), wall=wall)
        # Booked on the server when it responds again, so that the day's spending counts it.
        self._granted_by_fallback += 1
        self._owed += weight
        self._owed_counted += weight if counts else 0.0
        return booking, self._stale()

    async def _request(
        self, op: str, weight: float = 1, counts: bool = True, *arguments: str, now: bool = False
    ) -> State:
        """Run one operation on the server; if it is away, and there is a fallback, return a stale state."""
        outcome = await self._tried(op, weight, counts, *arguments, now=now)
        return self._stale() if outcome is None else outcome[1]

    async def _tried(
        self, op: str, weight: float, counts: bool, *arguments: str, now: bool = False
    ) -> tuple[Booking, State] | None:
        """Run one operation on the server; None: it is away, and there is a fallback.

        With `now` it is retried if it was away, for what the other processes have to know.
        """
        loop = asyncio.get_running_loop()
        if self._away_since is not None and not now:
            # Retried in the background: no request waits for it.
            if loop.time() >= self._retry_at and (self._retrying is None or self._retrying.done()):
                self._retrying = loop.create_task(self._contact())
            return None
        if not self._started or self._owed or self._away_since is not None:
            await self._contact()
        if self._away_since is None:
            try:
                return await self._run(op, repr(float(weight)), "1" if counts else "0", *arguments)
            except BucketUnavailableError as error:
                self._begin_outage(error)
        return None

    def _begin_outage(self, error: BucketUnavailableError) -> None:
        """Let the fallback pace from now on, or raise the error."""
        if self._fallback is None:
            raise error
        now = asyncio.get_running_loop().time()
        self._retry_at = now + _AWAY
        if self._away_since is None:
            _log.warning("%s: the fallback paces for now", error)
            self._away_since = now

    async def _contact(self) -> None:
        """Catch up with the server, or begin an outage."""
        try:
            await self._catching_up.share(None, self._catch_up)
        except BucketUnavailableError as error:
            self._begin_outage(error)

    async def _catch_up(self) -> None:
        """Apply the parameters and book what the fallback has granted: the server responds again."""
        if not self._started:
            await self._configure()
        seconds = 0.0 if self._away_since is None else asyncio.get_running_loop().time() - self._away_since
        owed, counted = self._owed, self._owed_counted
        if owed or self._away_since is not None:  # the latter to find out whether it responds
            await self._run("spend", repr(owed), "0", repr(counted), _micros(seconds))
        self._owed -= owed
        self._owed_counted -= counted
        if self._away_since is not None:
            granted, self._granted_by_fallback = self._granted_by_fallback, 0
            self._away_since = None
            _log.warning(
                "the Redis server of %s responds again after %.1f s; %d requests were granted by the"
                " fallback",
                *(self._keys[0], seconds, granted),
            )

    async def _configure(self) -> None:
        reply = await self._reply("configure", "1.0", "1")
        self._started = True
        if note := reply[_NOTE]:
            _log.warning(
                "%s: (rate, burst, daily_budget) were %r and are now %r, from the last process to start",
                self._keys[0],
                tuple(float(each) if each else None for each in note.split(" ")),
                tuple(self._parameters),
            )

    def _stale(self) -> State:
        """Return the last known state; before the first response, that of the parameters."""
        if self._state is None:
            unused = Ledger(*self._parameters, epoch=-1)
            unused.at(0.0, 0.0)
            return evolve(unused.state(), stale=True)
        return evolve(self._state, stale=True, resume_at=None)

    async def _run(self, op: str, *arguments: str) -> tuple[Booking, State]:
        reply = await self._reply(op, *arguments)
        (
            granted, moment, end, epoch, resume_at, _, *seen, now, wall, rate, burst, daily_budget,
            given_rate, level, paused_until, exhausted_until, learned, began, second, before, lately,
        ) = reply  # fmt: skip
        # What a look computes is not stored.
        known_version, *_, known_generation = self._seen
        if op != "look" and (seen[-1] != known_generation or int(seen[0]) > int(known_version)):
            self._seen = tuple(seen)
        booking = Booking(
            granted=int(granted),
            moment=int(moment) / 1e6,
            end=int(end),
            epoch=int(epoch),
            resume_at=_seconds(resume_at),
        )
        measure = Measure()
        if second:
            measure.began, measure.second = int(began) / 1e6, int(second) / 1e6
            measure.before, measure.lately = float(before), float(lately)
        self._state = State(
            now=int(now) / 1e6,
            wall=int(wall) / 1e6,
            rate=float(rate) if rate else None,
            burst=float(burst),
            daily_budget=float(daily_budget) if daily_budget else None,
            learns=not given_rate,
            level=float(level),
            paused_until=int(paused_until) / 1e6,
            spent=float(seen[2]),
            resume_at=_seconds(exhausted_until),
            learned=b64decode(learned),
            measure=measure,
        )
        return booking, self._state

    async def _reply(self, op: str, *arguments: str) -> list[str]:
        now = "" if self._microseconds is None else str(self._microseconds())
        # The script is stateless: what this process last saw goes along, so that a server that has lost its
        # state learns the day's spending from it.
        sent = [op, repr(EPSILON * 1e6), repr(LATE * 1e6), now]
        sent += ["" if each is None else repr(float(each)) for each in self._parameters]
        async with self._turns.get():
            reply = await self._evaluated([*sent, *self._seen, *arguments])
        return [each.decode() if isinstance(each, bytes) else each for each in reply]

    async def _evaluated(self, sent: list[str]) -> list[Any]:
        from redis.exceptions import NoScriptError, RedisError

        while True:
            client = await self._connection()
            try:
                async with unless_silent(self._silent):
                    return cast("list[Any]", await client.evalsha(_SHA, 2, *self._keys, *sent))
            except NoScriptError:  # the server was started again since
                self._connected = None
            except TimeoutError as error:
                self._connected = None
                busy = "; the event loop was busy" if "busy" in str(error) else ""
                raise self._unavailable(
                    f"connected in {self._connected_in:.1f} s, but no response to a command within"
                    f" {self._silent:g} s (silent=){busy}"
                ) from None
            except (RedisError, OSError) as error:
                self._connected = None
                raise self._unavailable(error) from None
            except BaseException:  # cancelled: the connection is closed, since the response is still to come
                self._connected = None
                raise

    async def _connection(self) -> RedisClient:
        """Return a client whose connection is open; wait for it as long as the class says."""
        client, loop = await self._clients.get(), running_loop()
        if self._connected is client:
            return client
        first = self._fallback is None and not self._was_connected
        newest = self._attempt(client, repeated_after=_AWAY if first else self._silent)
        limit = _FIRST_CONNECTION if first else self._silent
        # The first one is waited for from its beginning: afterwards requests fail at once until it is open.
        left = (self._connecting_since if first else loop.time()) + limit - loop.time()
        if left > 0:
            with suppress(TimeoutError):
                async with unless_silent(left):
                    while self._connected is not client and not newest.done():
                        await asyncio.wait(self._attempts, return_when=asyncio.FIRST_COMPLETED)
        if self._connected is client:
            return client
        if not newest.done():
            raise self._unavailable(f"no connection within {limit:g} s")
        error = None if newest.cancelled() else newest.exception()
        raise self._unavailable(error or "the connection was closed")

    def _attempt(self, client: RedisClient, *, repeated_after: float) -> asyncio.Task[None]:
        """Return the newest attempt to connect. One that takes long is kept, and another one begun."""
        loop = running_loop()
        self._attempts = [each for each in self._attempts if not each.done() and each.get_loop() is loop]
        if not self._attempts:
            self._connecting_since = loop.time()
        is_late = loop.time() >= self._attempted_at + repeated_after
        if not self._attempts or (is_late and len(self._attempts) < _ATTEMPTS):
            self._attempted_at = loop.time()
            attempt = loop.create_task(self._connect(client))
            # Its error is for the requests that wait, if any.
            attempt.add_done_callback(lambda task: task.cancelled() or task.exception())
            self._attempts.append(attempt)
        return self._attempts[-1]

    async def _connect(self, client: RedisClient) -> None:
        """Connect and load the script."""
        if self._closed:
            raise RuntimeError("this bucket is closed")
        loop = running_loop()
        began = loop.time()
        async with asyncio.timeout(_CONNECTION):
            await client.script_load(_SCRIPT)
        self._connected, self._connected_in, self._was_connected = client, loop.time() - began, True

    def _unavailable(self, reason: str | BaseException) -> BucketUnavailableError:
        from redis.exceptions import ConnectionError as RedisConnectionError, RedisError, ResponseError

        verb = "used" if isinstance(reason, ResponseError) else "reached"
        if isinstance(reason, BaseException):
            # What the server says is shown, unless it may contain a URL with a password.
            text = str(reason) if isinstance(reason, RedisError) else ""
            if not text or "@" in text or isinstance(reason, RedisConnectionError):
                text = type(reason).__name__
            reason = text
        return BucketUnavailableError(f"the Redis server of {self._keys[0]} can't be {verb}: {reason}")


def _text(state: bytes) -> str:
    return b64encode(state).decode()


def _micros(seconds: float) -> str:
    return str(round(seconds * 1e6))


def _seconds(micros: str) -> float | None:
    return int(micros) / 1e6 if micros else None


def _booking_arguments(booked: Booking) -> tuple[str, str, str]:
    return _micros(booked.moment), str(int(booked.end)), str(booked.epoch)
