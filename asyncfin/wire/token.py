"""The access token: where it comes from, when it is asked for again, and that nothing ever shows it."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NoReturn, TypeAlias

from asyncfin.errors import AuthenticationError, SelectionError, ServiceError
from asyncfin.wire.shared import SharedReads

AskToken: TypeAlias = Callable[[], Awaitable[str]]

_PRINTABLE = r"[\x21-\x7e]+"
_WANTED = "printable ASCII without spaces"
_HIDDEN = "(secret)"
# Answers to a request with a token older than this many renewals are long in.
_REMEMBERED = 16
# A token shorter than this may stand in the data by chance, which is not to be spoiled.
_UNMISTAKABLE = 8


class _HiddenText(str):
    """Text that the locals of a traceback, or the repr of the headers it stands in, do not show."""

    __slots__ = ()

    def __repr__(self) -> str:
        return _HIDDEN


class Secret:
    """A token that no repr, str, format or pickle reveals."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = _HiddenText(text)

    def bearer(self) -> str:
        """Return the value of the Authorization header (spec 5), its repr hidden too."""
        return _HiddenText(f"Bearer {self._text}")

    def struck_from(self, answered: bytes) -> bytes:
        """Return a part of an answer without the token, should the service repeat it there."""
        text = self._text.encode()
        if len(text) < _UNMISTAKABLE:
            return answered
        for form in {text, text.replace(b"/", rb"\/")}:  # JSON may write a slash in both ways
            answered = answered.replace(form, _HIDDEN.encode())
        return answered

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
        SelectionError: `token` is neither printable ASCII without spaces nor an async callable.
    """

    def __init__(self, token: str | AskToken) -> None:
        self._ask = None if isinstance(token, str) else _checked_callable(token)
        self._known: deque[Secret] = deque(maxlen=_REMEMBERED)
        self._current: Secret | None = None
        self._asking: SharedReads[str, Secret | str] = SharedReads()
        if isinstance(token, str):
            if not _is_token(token):
                raise SelectionError(f"token must be {_WANTED}; the value is not shown")
            self._keep(token)

    @property
    def renewable(self) -> bool:
        """Whether a refused token can be replaced."""
        return self._ask is not None

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
            raise AuthenticationError(status=401, message=outcome)
        return outcome

    def redact(self, error: ServiceError) -> None:
        """Take out of an error's texts every token that this client has used: the service may echo one."""
        error.message = self._redacted(error.message)
        error.code = error.code and self._redacted(error.code)
        error.request_id = error.request_id and self._redacted(error.request_id)
        error.args = (error.status, error.code, error.message, error.request_id)

    def _redacted(self, text: str) -> str:
        for each in self._known:
            text = re.sub(each.pattern(), _HIDDEN, text)
        return text

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


def _escapes(character: str) -> str:
    return rf"(?:\\?{re.escape(character)}|(?i:%{ord(character):02x}|\\u00{ord(character):02x}))"


def _is_token(text: object) -> bool:
    return isinstance(text, str) and re.fullmatch(_PRINTABLE, text) is not None


def _checked_callable(token: AskToken) -> AskToken:
    if callable(token) and any(map(inspect.iscoroutinefunction, (token, type(token).__call__))):
        return token
    shown = "a plain function: write async def" if inspect.isroutine(token) else type(token).__name__
    raise SelectionError(f"token must be a str, or an async callable that returns one, not {shown}")
