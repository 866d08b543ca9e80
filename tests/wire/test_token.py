"""Where the token comes from, and when it is asked for again."""

import asyncio
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from asyncfin.errors import ArgumentError, AuthenticationError, SelectionError
from asyncfin.wire.retry import Retry, Timeouts
from asyncfin.wire.token import Tokens, token_file
from tests.services.raw import Received, answer, refusal
from tests.wire.sending import READ, sending

pytestmark = pytest.mark.virtual


class Issuer:
    """Gives token-1, token-2, ...; each takes a second."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self) -> str:
        self.asked += 1
        number = self.asked
        await asyncio.sleep(1)
        return f"token-{number}"


def accepting(*tokens: str) -> Callable[[Received], bytes]:
    return lambda request: answer() if request.token in tokens else refusal(401)


# --- what a response echoes


async def test_echoed_token_is_removed() -> None:
    """Neither its body nor its headers: a result may be stored, and shown to others."""
    seen = "canary-token+/0="
    body = json.dumps({"name": f"of {seen}"}).encode()
    async with sending(answer(200, body, x_seen=seen), token=seen) as (_, sender, _events):
        response = await sender.send(READ)
    assert b'"of ' in response.body
    assert "x-seen" in {name.lower() for name in response.headers}
    assert seen not in f"{response.body!r} {dict(response.headers)} {response!r}"


# --- when it is asked


async def test_callable_is_called_once() -> None:
    """Not at construction; once for ten requests at the same time, and once when all ten get a 401."""
    issuer = Issuer()
    async with sending(judge=accepting("token-2"), token=issuer, max_in_flight=10) as (server, sender, _):
        assert issuer.asked == 0
        await asyncio.gather(*(sender.send(READ) for _ in range(10)))
        await sender.send(READ)
    assert issuer.asked == 2
    assert [each.token for each in server.requests] == ["token-1"] * 10 + ["token-2"] * 11


async def test_rejection_of_old_token_asks_nothing() -> None:
    """The late 401 of the old token is answered with the new one, which is already there."""
    issuer = Issuer()
    tokens = Tokens(issuer)
    first = await tokens.current()
    first.record(AuthenticationError(status=401), 0.0, 1.0)
    second = await tokens.current()
    first.record(AuthenticationError(status=401), 2.0, 3.0)
    assert await tokens.current() is second
    assert issuer.asked == 2


@pytest.mark.parametrize("tokens", [(), ("token-2",)])
async def test_renewing_is_no_attempt(tokens: tuple[str, ...]) -> None:
    """With a single attempt allowed the renewed token is tried too; if it is rejected, no third one is."""
    retry = Retry(attempts=1)
    async with sending(judge=accepting(*tokens), token=Issuer(), retry=retry) as (server, sender, _):
        if tokens:
            await sender.send(READ)
        else:
            with pytest.raises(AuthenticationError) as caught:
                await sender.send(READ)
            assert (caught.value.attempts, caught.value.request_id) == (2, "r-1")
    assert [each.token for each in server.requests] == ["token-1", "token-2"]


# --- when it fails


async def raising() -> str:
    try:
        raise KeyError("canary-in-cause")
    except KeyError as error:
        raise ValueError("canary-in-text") from error


async def cancelling() -> str:
    raise asyncio.CancelledError("canary-in-text")


async def returning_none() -> Any:
    return None


async def returning_two_lines() -> str:
    return "canary-in-text\nSet-Cookie: x"


async def returning_nothing() -> str:
    return ""


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (raising, "raised ValueError"),
        (cancelling, "raised CancelledError"),
        (returning_none, "must return a str"),
        (returning_two_lines, "must return a str"),
        (returning_nothing, "must return a str"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
async def test_failing_callable_quotes_nothing(token: Any, expected: str) -> None:
    """Each waiting request gets its own; nothing is sent, and no grant is spent."""
    async with sending(judge=accepting(), token=token, max_in_flight=10) as (server, sender, _):
        ends = await asyncio.gather(*(sender.send(READ) for _ in range(3)), return_exceptions=True)
    assert server.requests == []
    assert len({id(end) for end in ends}) == 3
    for end in ends:
        assert isinstance(end, AuthenticationError)
        assert expected in end.message
        assert "canary" not in f"{end!r} {end} {end.report()}"
        assert end.__cause__ is None
        assert end.__context__ is None
        assert (end.operation, end.attempts) == ("dataset", 0)


async def test_hanging_callable_ends_with_total_timeout() -> None:
    """All who wait for it get the error, and the next request asks again."""
    asked: list[int] = []

    async def hanging() -> str:
        asked.append(1)
        if len(asked) == 1:
            await asyncio.Event().wait()
        return "good"

    async with sending(
        judge=accepting("good"), token=hanging, max_in_flight=10, timeouts=Timeouts(total=45)
    ) as (server, sender, _):
        loop = asyncio.get_running_loop()
        ends = await asyncio.gather(*(sender.send(READ) for _ in range(3)), return_exceptions=True)
        assert loop.time() == pytest.approx(45, abs=0.1)
        assert server.requests == []
        for end in ends:
            assert isinstance(end, AuthenticationError)
            assert end.message == "the token callable returned nothing within 45 s"
            assert (end.answered, end.__cause__, end.__context__) == (False, None, None)
        assert (await sender.send(READ)).status == 200


# --- what is taken for one


@pytest.mark.parametrize(
    "token", ["", " ", "a canary", "Bearer canary", "canary\n", "\tcanary", "canär", "canary\x00"]
)
def test_impossible_token_is_rejected_unseen(token: str) -> None:
    """A token must be printable ASCII without spaces; the error does not show it."""
    with pytest.raises(SelectionError, match="without the word Bearer") as caught:
        Tokens(token)
    assert "can" not in str(caught.value)


def sync() -> str:
    return "canary"


@pytest.mark.parametrize("token", [sync, lambda: "canary", None, b"canary", 5, object(), Issuer])
def test_wrong_kind_of_token_is_rejected(token: Any) -> None:
    """What is neither a str nor async is refused at construction, without being called or shown."""
    with pytest.raises(SelectionError, match="token must be a str, or an async callable") as caught:
        Tokens(token)
    assert "canary" not in str(caught.value)


async def given(text: str) -> str:
    return text


class Account:
    async def token(self) -> str:
        return "mine"


@pytest.mark.parametrize(
    "token", [functools.partial(given, "mine"), Account().token], ids=["partial", "bound method"]
)
async def test_async_callables_are_accepted(token: Any) -> None:
    """Partials and bound methods of async functions are taken like functions."""
    assert (await Tokens(token).current()).text == "mine"


async def test_token_file_is_read_after_401(tmp_path: Path) -> None:
    """Its first line, without blanks at its ends; so a token that is renewed in time is used."""
    path = tmp_path / "token"
    path.write_text("  old-token \nnot this line")
    source = token_file(path)

    def judge(request: Received) -> bytes:
        if request.token == "new-token":
            return answer()
        path.write_text("new-token")
        return refusal(401)

    async with sending(judge=judge, token=source) as (server, sender, _):
        for _ in range(3):
            await sender.send(READ)
    assert [each.token for each in server.requests] == ["old-token", *["new-token"] * 3]


@pytest.mark.parametrize("content", [None, "", "two words"])
async def test_token_file_without_token_fails_requests(tmp_path: Path, content: str | None) -> None:
    """Without its path or content, which may be secret; a later request reads it again."""
    path = tmp_path / "secret-path"
    if content is not None:
        path.write_text(content)
    async with sending(answer(), token=token_file(str(path))) as (server, sender, _):
        with pytest.raises(AuthenticationError) as caught:
            await sender.send(READ)
        assert "secret" not in str(caught.value)
        assert not caught.value.answered
        path.write_text("good-token")
        await sender.send(READ)
    assert len(server.requests) == 1


def test_a_token_file_needs_a_path() -> None:
    """Not a token, nor an open file."""
    with pytest.raises(ArgumentError, match="path must be"):
        token_file(5)  # type: ignore[arg-type]
