"""A token that the service has rejected is not sent at every visit."""

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from asyncfin.errors import AuthenticationError
from asyncfin.wire.retry import Retry
from asyncfin.wire.sender import Sender
from asyncfin.wire.token import Secret, token_file
from tests.services.raw import Received, answer, refusal
from tests.wire.sending import READ, sending


class Account:
    """Accepts some tokens, and rejects all others."""

    def __init__(self, *tokens: str) -> None:
        self.tokens = set(tokens)

    def __call__(self, request: Received) -> bytes:
        if request.token not in self.tokens:
            return refusal(401, "invalid_token")
        return answer() if "dataset" in request.target else refusal(404)


async def visit(sender: Sender, count: int, seconds: float) -> list[Any]:
    """Send requests at equal intervals, and return responses and errors."""
    tasks = []
    for _ in range(count):
        tasks.append(asyncio.ensure_future(sender.send(READ)))
        await asyncio.sleep(seconds / count)
    return await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("token-one")
    return path


@pytest.mark.virtual
@pytest.mark.parametrize("kind", ["fixed", "file"])
async def test_visits_with_rejected_token(kind: str, path: Path) -> None:
    """200 visits in 5 s: six requests at most; the others raise the error with 0 attempts."""
    token = "token-one" if kind == "fixed" else token_file(path)
    async with sending(judge=Account(), token=token) as (server, sender, _):
        ends = await visit(sender, 200, 5)
    assert len(server.requests) <= 6
    assert all(isinstance(end, AuthenticationError) for end in ends)
    assert [end.attempts for end in ends].count(0) == 200 - len(server.requests)
    assert {end.code for end in ends} == {"invalid_token"}
    assert not any(end.answered for end in ends if end.attempts == 0)


@pytest.mark.virtual
async def test_waits_for_rejected_token_grow() -> None:
    """It is tried after 1, 2, 4, 8, 16 and then every 30 s."""
    async with sending(judge=Account(), token="token-one") as (server, sender, _):
        await visit(sender, 1500, 150)
        waits = [later.at - earlier.at for earlier, later in pairwise(server.requests)]
    assert waits == pytest.approx([1, 2, 4, 8, 16, 30, 30, 30], abs=0.3)


@pytest.mark.virtual
async def test_new_token_is_sent_at_once(path: Path) -> None:
    """The file is read at each visit while its last token is rejected."""
    async with sending(judge=Account("token-two"), token=token_file(path)) as (server, sender, _):
        await visit(sender, 40, 10)
        sent = len(server.requests)
        path.write_text("token-two")  # noqa: ASYNC240
        await sender.send(READ)
        assert len(server.requests) == sent + 1
        await visit(sender, 10, 1)
        assert len(server.requests) == sent + 11


@pytest.mark.virtual
async def test_accepted_token_is_sent_again() -> None:
    """A rejection that passes costs the visits of a second; then all are sent."""
    account = Account()
    async with sending(judge=account, token="token-one") as (server, sender, _):
        with pytest.raises(AuthenticationError):
            await sender.send(READ)
        account.tokens.add("token-one")
        with pytest.raises(AuthenticationError):
            await sender.send(READ)
        await asyncio.sleep(1.1)
        ends = await visit(sender, 20, 1)
    assert len(server.requests) == 21
    assert not any(isinstance(end, BaseException) for end in ends)


def test_late_rejection_of_accepted_token() -> None:
    """A request that was sent before an accepted one does not stop those after it."""
    token = Secret("token-one")
    token.record(None, 2.0, 3.0)
    token.record(AuthenticationError(status=401), 1.0, 4.0)
    assert token.rejection is None
    token.record(AuthenticationError(status=401), 5.0, 6.0)
    assert token.rejection is not None


@pytest.mark.virtual
async def test_together_sent_tokens_are_rejected_once(path: Path) -> None:
    """Eight requests that are rejected at one moment make the wait no longer than one."""
    async with sending(judge=Account(), token="token-one", max_in_flight=8) as (server, sender, _):
        await asyncio.gather(*(sender.send(READ) for _ in range(8)), return_exceptions=True)
        await asyncio.sleep(1.1)
        with pytest.raises(AuthenticationError) as caught:
            await sender.send(READ)
        assert caught.value.attempts == 1
        assert len(server.requests) == 9


@pytest.mark.virtual
@pytest.mark.parametrize("seconds", [10, 100])
async def test_bulk_waits_for_a_new_token(path: Path, seconds: float) -> None:
    """Within `max_elapsed`, and with few requests."""
    retry = Retry(max_elapsed=60)
    loop = asyncio.get_running_loop()
    account = Account("token-two")
    async with sending(judge=account, token=token_file(path), lane="bulk", retry=retry) as (
        server,
        sender,
        _,
    ):
        loop.call_later(seconds, path.write_text, "token-two")
        ends = await asyncio.gather(*(sender.send(READ) for _ in range(20)), return_exceptions=True)
        if seconds == 10:
            assert not any(isinstance(end, BaseException) for end in ends)
            assert loop.time() < 13
            assert len(server.requests) <= 20 + 8 + 4
        else:
            assert all(isinstance(end, AuthenticationError) for end in ends)
            assert 58 < loop.time() < 64
            assert len(server.requests) <= 8 + 7


@pytest.mark.virtual
async def test_other_tokens_are_not_concerned() -> None:
    """Another client of the same service sends its own token."""
    account = Account("token-two")
    async with (
        sending(judge=account, token="token-one") as (_, one, _events),
        sending(judge=account, token="token-two") as (_server, two, _others),
    ):
        with pytest.raises(AuthenticationError):
            await one.send(READ)
        await two.send(READ)
