"""Daily usage (spec 4.4) and account limits (spec 4.5); spec shows neither body, docs/sandbox.md does."""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Any

from asyncfin.sandbox.accounts import Account
from asyncfin.sandbox.fields import Issues, query_parameters, shown
from asyncfin.sandbox.request import Request, encode
from asyncfin.sandbox.store import Store

MAX_DAYS = 92


def usage(request: Request, account: Account, store: Store, today: date) -> bytes:
    """The account's data requests of every day of the range; raises RefusedError 400 for a wrong range."""
    start, end = _read_range(request, today)
    length = (end - start).days + 1
    days: dict[date, dict[str, int]] = {start + timedelta(days=at): {} for at in range(length)}
    for day, operation, requests in store.counts(account.name, start, end):
        days[date.fromisoformat(day)][operation] = requests
    listed = [
        {"date": day.isoformat(), "data_requests": sum(counts.values()), "operations": counts}
        for day, counts in days.items()
    ]
    return encode({"start_date": start.isoformat(), "end_date": end.isoformat(), "days": listed})


def _read_range(request: Request, today: date) -> tuple[date, date]:
    issues = Issues()
    given = query_parameters(request.query, ("start_date", "end_date"), issues)
    end = _date(given.get("end_date"), "end_date", today, issues)
    start = _date(given.get("start_date"), "start_date", end, issues)
    issues.refuse()  # a date that is none has no order
    if start > end:
        issues.add("start_date", f"is {start}, after end_date {end}")
    elif (end - start).days >= MAX_DAYS:
        issues.add("end_date", f"makes a range of {(end - start).days + 1} days, not at most {MAX_DAYS}")
    issues.refuse()
    return start, end


def _date(text: str | None, name: str, default: date, issues: Issues) -> date:
    if text is None:
        return default
    try:
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
            return date.fromisoformat(text)
    except ValueError:
        pass
    issues.add(name, f"is {shown(text)}, not a date written YYYY-MM-DD")
    return default


def limits(request: Request, account: Account) -> bytes:
    """Credits and research runs: fixed figures, for nothing here spends them."""
    issues = Issues()
    query_parameters(request.query, (), issues)
    issues.refuse()
    body: dict[str, Any] = {
        "account": account.name,
        "credits": {"granted": 1000, "used": 0, "remaining": 1000},
        "research_runs": {"limit": 20, "used": 0, "remaining": 20, "period": "day"},
    }
    return encode(body)
