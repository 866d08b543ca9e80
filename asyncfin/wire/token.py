"""The access token: where it comes from, when it is asked for again, and that nothing ever shows it."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, NoReturn, TypeAlias

from asyncfin.errors import ArgumentError, AuthenticationError, ServiceError
from asyncfin.model.checks import is_async
from asyncfin.wire.tasks import SingleFlight

AskToken: TypeAlias = Callable[[], Awaitable[str]]

_PRINTABLE = r"[\x21-\x7e]+"
_WANTED = "printable ASCII without spaces"
_HIDDEN = "(secret)"
# Responses to a request with a token older than this many renewals are long in.
_REMEMBERED = 16
# A token shorter than this may stand in a response by chance, which is not to be spoiled.
_UNMISTAKABLE = 8


class _HiddenText(str):
    """Text that the locals of a traceback, or the repr of the headers it stands in, do not show."""

    __slots__ = ()

    def __repr__(self) -> str:
        return _HIDDEN


class Secret:
    """A token that no repr, str, format or pickle reveals.

    Attributes:
        unmistakable: whether it is long enough not to stand in a response by chance.
    """

    __slots__ = ("_run", "_text", "unmistakable")

    def __init__(self, text: str) -> None:
        self._text = _HiddenText(text)
        self._run = max(re.findall("[A-Za-z0-9]*", text), key=len).encode()
        self.unmistakable = len(text) >= _UNMISTAKABLE

    def bearer(self) -> str:
        """Return the value of the Authorization header (spec 5), its repr hidden too."""
        return _HiddenText(f"Bearer {self._text}")

    def may_stand_in(self, answered: bytes) -> bool:
        """Tell, by what no form of the token escapes, whether it is worth looking for `pattern`."""
        return self._run in answered

    def pattern(self) -> str:
        """Return a regular expression for the token, as it is or escaped as in URLs and JSON."""
        return "".join(each if each.isalnum() else _escapes(each) for each in self._text)

    def __repr__(self) -> str:
        return f"Secret{_HIDDEN}"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled or copied")


class Tokens:
    """The token of a client: a fixed one, or what an async callable returned last.

    The callable is asked at first use, and again after the service refused what it returned. It is
    asked once, however many requests wait for the token, and goes on while one of them still waits.

    Raises:
        ArgumentError: `token` is neither printable ASCII without spaces nor an async callable.
    """

    def __init__(self, token: str | AskToken) -> None:
        self._ask = None if isinstance(token, str) else _checked_callable(token)
        self._known: deque[Secret] = deque(maxlen=_REMEMBERED)
        self._current: Secret | None = None
        self._asking: SingleFlight[str, Secret | str] = SingleFlight()
        if isinstance(token, str):
            if not _is_token(token):
                raise ArgumentError(f"token must be {_WANTED}; the value is not shown")
            self._keep(token)

    @property
    def renewable(self) -> bool:
        """Whether a refused token can be replaced."""
        return self._ask is not None

    @property
    def held(self) -> Secret | None:
        """The token to send, if it is there without asking."""
        return self._current

    def refused(self, token: Secret) -> None:
        """Take in that the service refused `token` (401). One that was replaced since is no news."""
        if token is self._current and self.renewable:
            self._current = None

    async def current(self) -> Secret:
        """Return the token to send.

        Raises:
            AuthenticationError: the callable raised, or returned no token.
        """
        if self._current is not None:
            return self._current
        outcome = await self._asking.share("token", self._renewed)
        if isinstance(outcome, str):
            raise AuthenticationError(status=401, message=outcome, answered=False)
        return outcome

    def struck_from(self, answered: bytes) -> bytes:
        """Return a part of a response without any unmistakable token that this client has used."""
        echoed = [each for each in self._known if each.unmistakable and each.may_stand_in(answered)]
        return re.sub(_any_of(echoed).encode(), _HIDDEN.encode(), answered) if echoed else answered

    def redact(self, error: ServiceError) -> None:
        """Take out of an error's texts every token that this client has used: the service may echo one.

        Its code and request id, which programs and the support go by, keep what may be chance.
        """
        unmistakable = [each for each in self._known if each.unmistakable]
        error.message = _redacted(error.message, self._known)
        error.code = error.code and _redacted(error.code, unmistakable)
        error.request_id = error.request_id and _redacted(error.request_id, unmistakable)
        error.details = _redacted_details(error.details, self._known)
        error.args = (error.status, error.code, error.message, error.request_id)

    async def _renewed(self) -> Secret | str:
        """Ask for a token; what came instead of one is told without its text, which may hold a secret."""
        assert self._ask is not None
        try:
            text = await self._ask()
        except (Exception, asyncio.CancelledError) as error:
            if (task := asyncio.current_task()) and task.cancelling():
                raise
            return f"the token callable raised {type(error).__name__}"
        if not _is_token(text):
            return f"the token callable must return a str of {_WANTED}; what it returned is not shown"
        return self._keep(text)

    def _keep(self, text: str) -> Secret:
        self._current = Secret(text)
        self._known.appendleft(self._current)
        return self._current


def _redacted(text: str, secrets: Collection[Secret]) -> str:
    return re.sub(_any_of(secrets), _HIDDEN, text) if secrets else text


def _redacted_details(value: Any, secrets: Collection[Secret]) -> Any:
    match value:
        case str():
            return _redacted(value, secrets)
        case Mapping():
            return {
                _redacted(name, secrets): _redacted_details(each, secrets) for name, each in value.items()
            }
        case list():
            return [_redacted_details(each, secrets) for each in value]
    return value


def _any_of(secrets: Collection[Secret]) -> str:
    """Return a regular expression for these; the longer first, for one may begin with another."""
    return "|".join(sorted((each.pattern() for each in secrets), key=len, reverse=True))


def _escapes(character: str) -> str:
    """Return a regular expression for a character as it is, or escaped once or twice."""
    code = f"{ord(character):02x}"
    return rf"(?:\\{{0,3}}{re.escape(character)}|(?i:%(?:25)*{code}|\\{{1,2}}u00{code}))"


def _is_token(text: object) -> bool:
    return isinstance(text, str) and re.fullmatch(_PRINTABLE, text) is not None


def _checked_callable(token: AskToken) -> AskToken:
    if is_async(token):
        return token
    shown = "a plain function: write async def" if inspect.isroutine(token) else type(token).__name__
    raise ArgumentError(f"token must be a str, or an async callable that returns one, not {shown}")
