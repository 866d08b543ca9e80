"""A bucket shared by machines: its state is in a Redis server, by whose clock all of them go.

`_SCRIPT` is `asyncfin.pacing.ledger` in Lua: the server runs it whole, so that an operation needs no lock.
Times in it are whole microseconds, sent as text: Redis cuts numbers in replies to integers, and Lua's own
conversion keeps 14 digits. The learned rate has a key of its own: it is changed here, in Python, and
replaced there unless somebody else has done so meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64decode, b64encode
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from asyncfin import checks
from asyncfin.clock import utc_now
from asyncfin.errors import AllowanceExhaustedError, BucketUnavailableError
from asyncfin.pacing.booking import SharedBucket, Store
from asyncfin.pacing.bucket import Bucket, check_rate, check_size
from asyncfin.pacing.ledger import EPSILON, LATE, Booking
from asyncfin.redis import RedisClients, unless_silent
from asyncfin.tasks import SingleFlight

if TYPE_CHECKING:
    from redis.asyncio import Redis

# A server that is silent for so long, in seconds, is away.
_SILENT = 0.5
# With a fallback, it is not asked again for this long.
_AWAY = 2.0
# Except for what the others have to know.
_ANNOUNCED = ("pause", "exhaust")

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

-- The clock is the server's, unless a test hands one in.
local now = number(ARGV[4])
if now == nil then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end
local wall = now

local v = redis.call('HMGET', key, 'given_rate', 'given_budget', 'rate', 'burst', 'full_at', 'paused_until',
  'epoch', 'date', 'began', 'spent', 'exhausted_until', 'version', 'now', 'given_burst')
local given_rate, given_budget, rate, burst = number(v[1]), number(v[2]), number(v[3]), number(v[4])
local full_at, paused_until, epoch = number(v[5]) or 0, number(v[6]) or 0, number(v[7])
local date, began, spent = number(v[8]) or 0, number(v[9]) or 0, number(v[10]) or 0
local exhausted_until, version, given_burst = number(v[11]), number(v[12]) or 0, number(v[14])
local step = (number(v[13]) or 0) - now
if step > SET_BACK then
  full_at, paused_until, began, epoch = full_at - step, paused_until - step, began - step, epoch + 1
elseif step > 0 then
  now = now + step
end

-- What the caller last saw: its parameters, version, date, spent, exhausted_until.
local seen_version, seen_date = tonumber(ARGV[8]), tonumber(ARGV[9])
local seen_spent, seen_exhausted = tonumber(ARGV[10]), number(ARGV[11])
if epoch == nil then
  given_rate, given_burst, given_budget = number(ARGV[5]), number(ARGV[6]), number(ARGV[7])
  rate, burst, epoch = given_rate, given_burst, now
end
if version < seen_version then  -- the server has lost its state, or is back from an older one
  if seen_date > date then date, began, spent = seen_date, 0, seen_spent
  elseif seen_date == date then spent = math.max(spent, seen_spent) end
  if seen_exhausted then exhausted_until = math.max(exhausted_until or 0, seen_exhausted) end
  version = seen_version
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
local function spend_day(weight)
  if today() ~= date then date, began, spent = today(), now, 0 end
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
local weight, counts = number(ARGV[12]), ARGV[13] == '1'
local function grant(at)
  if counts then spend_day(weight) end
  granted, moment = 1, at
end
local function reserve()
  if counts then
    resume = resume_at(weight)
    if resume then return end
  end
  local at = math.max(now, gcra_moment(weight))
  gcra_spend(weight, at)
  if at <= now + EPSILON then grant(at) else moment = at end
end
local function cancel(booked_end, booked_epoch)
  if booked_epoch == epoch and booked_end == full_at then gcra_give_back(weight) end
end

if op == 'reserve' then
  reserve()
elseif op == 'confirm' then
  local booked_moment, booked_end, booked_epoch = tonumber(ARGV[14]), tonumber(ARGV[15]), tonumber(ARGV[16])
  if counts then resume = resume_at(weight) end
  if resume then
    cancel(booked_end, booked_epoch)
  elseif booked_epoch ~= epoch
      or (rate ~= nil and now > booked_moment + math.max(weight / rate * 1000000, LATE)) then
    reserve()
  elseif rate ~= nil and booked_moment > now + EPSILON then
    moment, finish = booked_moment, booked_end
  else
    grant(now)
  end
elseif op == 'cancel' then
  cancel(tonumber(ARGV[15]), tonumber(ARGV[16]))
elseif op == 'give_back' then
  if held(now) > -0.001 then gcra_give_back(weight) end
  if counts then unspend_day(weight, tonumber(ARGV[14])) end
elseif op == 'unspend' then
  unspend_day(weight, tonumber(ARGV[14]))
elseif op == 'pause' then
  local till = now + tonumber(ARGV[14])
  if till > math.max(now, paused_until) then
    epoch = epoch + 1
    if rate ~= nil then
      full_at = math.min(full_at, now + round(burst / rate * 1000000))
      full_at = math.max(full_at, till + round((burst - 1) / rate * 1000000))
    end
    paused_until = till
  end
elseif op == 'exhaust' then
  local till = wall + tonumber(ARGV[14])
  exhausted_until = math.max(till, exhausted_until or till)
elseif op == 'spend' then  -- weight, and how much of it counts
  gcra_spend(weight, now)
  if tonumber(ARGV[14]) > 0 then spend_day(tonumber(ARGV[14])) end
elseif op == 'configure' then
  local new_rate, new_burst, new_budget = number(ARGV[5]), number(ARGV[6]), number(ARGV[7])
  if new_rate ~= given_rate or new_burst ~= given_burst or new_budget ~= given_budget then
    note = '(' .. (v[1] or '') .. ', ' .. (v[14] or '') .. ', ' .. (v[2] or '') .. ')'
    if new_rate ~= nil or given_rate ~= nil then
      redis.call('DEL', learned_key)
      set_rate(new_rate, new_burst)
    else
      set_rate(rate, new_burst)
    end
    given_rate, given_burst, given_budget = new_rate, new_burst, new_budget
  end
elseif op == 'learn' then
  if (redis.call('GET', learned_key) or '') == ARGV[14] then
    redis.call('SET', learned_key, ARGV[15], 'EX', 604800)
    set_rate(number(ARGV[16]), burst)
  end
end

-- The other operations only report the state, as to a request of weight 1.
if op ~= 'reserve' and op ~= 'confirm' then resume = resume_at(1) end
version = version + 1
redis.call('HSET', key, 'given_rate', exact(given_rate), 'given_burst', exact(given_burst),
  'given_budget', exact(given_budget), 'rate', exact(rate), 'burst', exact(burst), 'full_at', text(full_at),
  'paused_until', text(paused_until), 'epoch', text(epoch), 'date', text(date), 'began', text(began),
  'spent', exact(spent), 'exhausted_until', text(exhausted_until), 'version', text(version),
  'now', text(now))
-- A bucket that nobody has used for a week is forgotten.
redis.call('EXPIRE', key, 604800)
return {text(granted), text(moment), text(finish or full_at), text(epoch), text(now), text(resume),
  exact(rate), exact(burst), exact(given_budget), exact(held(now)), text(paused_until), exact(spent_today()),
  text(version),
  text(today()), text(exhausted_until), redis.call('GET', learned_key) or '', note, text(wall)}
"""


class RedisBucket(SharedBucket):
    """Paces the requests of all processes, on however many machines, that name the same account.

    It gives what `FileBucket` gives, by the clock of the Redis server.

    Args:
        redis: the URL of the server, or a `redis.asyncio.Redis`, which stays open when the bucket is closed.
        account: names the account whose allowance is shared.
        rate: as in `FileBucket`.
        burst: as in `FileBucket`.
        daily_budget: as in `FileBucket`.
        fallback: the bucket that paces this process while the server does not respond within half a second.
            The server is tried again after 2 seconds, and what the fallback has granted is booked when it
            responds. None: waiting requests get a BucketUnavailableError, and nothing is sent.

    Raises:
        ArgumentError: an argument is not as described.
        ImportError: the package redis is not installed (extra `redis`).
    """

    _kind = "RedisBucket"

    def __init__(
        self,
        redis: str | Redis,
        *,
        account: str,
        rate: float | None = None,
        burst: float = 1,
        daily_budget: float | None = None,
        fallback: Bucket | None = None,
        microseconds: Callable[[], int] | None = None,
    ) -> None:
        checks.text("a text that names the account")("account", account)
        check_rate("rate", rate)
        check_size("burst", burst)
        check_size.optional()("daily_budget", daily_budget)
        checks.instance_of(Bucket).optional()("fallback", fallback)
        self._account = account
        store = RedisStore(RedisClients(redis), account, (rate, burst, daily_budget), fallback, microseconds)
        super().__init__(store, rate, burst, daily_budget)

    def __repr__(self) -> str:
        # Without the URL, which may hold a password.
        rate = "None" if self._rate is None else f"{self._rate:g}"
        budget = "" if self._daily_budget is None else f", daily_budget={self._daily_budget:g}"
        return f"RedisBucket(account={self._account!r}, rate={rate}, burst={self._burst:g}{budget})"


class RedisStore(Store):
    def __init__(
        self,
        clients: RedisClients,
        account: str,
        parameters: tuple[float | None, float, float | None],
        fallback: Bucket | None,
        microseconds: Callable[[], int] | None,
    ) -> None:
        self._clients = clients
        name = f"asyncfin:bucket:{{{quote(account, safe='')}}}"
        self._keys = [name, f"{name}:learned"]  # one {tag}, so that a cluster keeps both in one place
        self._parameters = parameters
        self._fallback = fallback
        self._microseconds = microseconds
        self._script: Any = None
        self._started = False
        self._version, self._date, self._spent, self._exhausted = "0", "0", "0", ""
        rate, burst, daily_budget = parameters
        # Before the first reply: what the parameters say, and an epoch that no booking has.
        self._last = Booking(
            False, 0.0, 0.0, -1, 0.0, 0.0, None, rate, burst, daily_budget, burst, 0.0, 0.0, b""
        )  # fmt: skip
        self._away_until = -inf
        # What the fallback has granted, and how much of it counts: not booked yet.
        self._owed, self._owed_counted = 0.0, 0.0
        self._catching_up: SingleFlight[None, None] = SingleFlight()

    async def reserve(self, weight: float, counts: bool) -> Booking:
        return await self._or_fallback("reserve", weight, counts)

    async def confirm(self, booked: Booking, weight: float, counts: bool) -> Booking:
        return await self._or_fallback("confirm", weight, counts, *_of(booked))

    async def cancel(self, booked: Booking, weight: float) -> Booking:
        return await self._ask("cancel", weight, False, *_of(booked))

    async def give_back(self, weight: float, counts: bool, granted_at: float) -> Booking:
        return await self._ask("give_back", weight, counts, _micros(granted_at))

    async def unspend(self, weight: float, granted_at: float) -> Booking:
        return await self._ask("unspend", weight, True, _micros(granted_at))

    async def look(self) -> Booking:
        return await self._ask("look")

    async def pause(self, seconds: float) -> Booking:
        if self._fallback is not None:
            now = asyncio.get_running_loop().time()
            await self._fallback.refused(sent_at=now, retry_after=seconds)
        return await self._ask("pause", 1, True, _micros(seconds))

    async def exhaust(self, seconds: float) -> Booking:
        if self._fallback is not None:
            await self._fallback.exhaust(seconds)
        return await self._ask("exhaust", 1, True, _micros(min(seconds, 1e9)))

    async def learn(self, known: bytes, learned: bytes, rate: float | None) -> Booking | None:
        given = "" if rate is None else repr(rate)
        booking = await self._ask("learn", 1, True, _text(known), _text(learned), given)
        return booking if booking.stale or booking.learned == learned else None

    async def aclose(self) -> None:
        await self._clients.aclose()

    async def _or_fallback(self, op: str, weight: float, counts: bool, *arguments: str) -> Booking:
        booking = await self._ask(op, weight, counts, *arguments)
        if not booking.stale:
            return booking
        assert self._fallback is not None
        try:
            await self._fallback.acquire(weight, counts=counts)
        except AllowanceExhaustedError as error:
            wall = (error.at or utc_now()).timestamp()
            return booking._replace(resume_at=error.resume_at.timestamp(), wall=wall)
        # Booked on the server when it is back, so that a day's spending counts what the fallback has granted.
        self._owed += weight
        self._owed_counted += weight if counts else 0.0
        return booking._replace(granted=True)

    async def _ask(self, op: str, weight: float = 1, counts: bool = True, *arguments: str) -> Booking:
        """Run one operation on the server; if it is away, and there is a fallback, return a stale state."""
        loop = asyncio.get_running_loop()
        if self._fallback is None or loop.time() >= self._away_until or op in _ANNOUNCED:
            try:
                if self._owed or not self._started:
                    await self._catching_up.share(None, self._catch_up)
                booking, _ = await self._run(op, repr(float(weight)), "1" if counts else "0", *arguments)
                return booking
            except BucketUnavailableError as error:
                if self._fallback is None:
                    raise
                _log.warning("%s: the fallback paces for now", error)
                self._away_until = loop.time() + _AWAY
        return self._last._replace(granted=False, resume_at=None, stale=True)

    async def _catch_up(self) -> None:
        """Put the parameters in force, and book what the fallback has granted."""
        if not self._started:
            _, note = await self._run("configure")
            self._started = True
            # The first one finds nothing there: that is no change to warn of.
            if note and note != "(, , )":
                _log.warning(
                    "%s: (rate, burst, daily_budget) were %s and are %r now, as the last to start has them",
                    self._keys[0],
                    note,
                    self._parameters,
                )
        if self._owed:
            owed, counted = self._owed, self._owed_counted
            await self._run("spend", repr(owed), "0", repr(counted))
            self._owed -= owed
            self._owed_counted -= counted

    async def _run(self, op: str, *arguments: str) -> tuple[Booking, str]:
        from redis.exceptions import ConnectionError as RedisConnectionError, RedisError, ResponseError

        rate, burst, daily_budget = self._parameters
        now = "" if self._microseconds is None else str(self._microseconds())
        # The script is stateless: what this process last saw goes along, so that a server that has lost its
        # state learns the day's spending from it.
        sent = [op, repr(EPSILON * 1e6), repr(LATE * 1e6), now]
        sent += ["" if each is None else repr(float(each)) for each in (rate, burst, daily_budget)]
        sent += [self._version, self._date, self._spent, self._exhausted, *arguments]
        try:
            async with unless_silent(_SILENT):
                script = await self._scripted()
                reply = await script(keys=self._keys, args=sent)
        except (RedisError, OSError, TimeoutError) as error:
            # What the server says is shown, unless it may hold a URL with a password.
            reason = str(error) if isinstance(error, (RedisError, TimeoutError)) else ""
            if not reason or "@" in reason or isinstance(error, RedisConnectionError):
                reason = type(error).__name__
            verb = "used" if isinstance(error, ResponseError) else "reached"
            raise BucketUnavailableError(
                f"the Redis server of {self._keys[0]} can't be {verb}: {reason}"
            ) from None
        return self._read([each.decode() if isinstance(each, bytes) else each for each in reply])

    async def _scripted(self) -> Any:
        client = await self._clients.get()
        if self._script is None or self._script.registered_client is not client:
            self._script = client.register_script(_SCRIPT)
        return self._script

    def _read(self, reply: list[str]) -> tuple[Booking, str]:
        (
            granted, moment, end, epoch, now, resume_at, rate, burst, daily_budget, level, paused_until,
            spent, version, date, exhausted_until, learned, note, wall,
        ) = reply  # fmt: skip
        # Texts, as they came: they go back unchanged, so no rounding adds up.
        self._version, self._date, self._spent, self._exhausted = version, date, spent, exhausted_until
        self._last = Booking(
            granted == "1",
            int(moment) / 1e6,
            int(end),
            int(epoch),
            int(now) / 1e6,
            int(wall) / 1e6,
            int(resume_at) / 1e6 if resume_at else None,
            float(rate) if rate else None,
            float(burst),
            float(daily_budget) if daily_budget else None,
            float(level),
            int(paused_until) / 1e6,
            float(spent),
            b64decode(learned),
        )
        return self._last, note


def _text(state: bytes) -> str:
    return b64encode(state).decode()


def _micros(seconds: float) -> str:
    return str(round(seconds * 1e6))


def _of(booked: Booking) -> tuple[str, str, str]:
    return _micros(booked.moment), str(int(booked.end)), str(booked.epoch)
