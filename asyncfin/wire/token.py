"""The access token: its source, its renewal, and its redaction."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from copy import copy
from functools import partial
from hashlib import blake2b
from typing import NoReturn, TypeAlias

import msgspec
from attrs import evolve

from asyncfin.checks import expand_user, instance_of, is_async
from asyncfin.errors import ArgumentError, AuthenticationError
from asyncfin.tasks import SingleFlight
from asyncfin.wire.protocol import Response
from asyncfin.wire.retry import growing_wait

AskToken: TypeAlias = Callable[[], Awaitable[str]]
TokenSource: TypeAlias = str | AskToken
"""An access token, or an async callable that returns one."""

# RFC 6750 allows fewer characters (section 2.1); a header can carry all of these.
_PRINTABLE = r"[\x21-\x7e]+"
_WANTED = (
    "printable ASCII without spaces (and without the word Bearer, which is sent with "
    "it)"
)
_path = instance_of(str, os.PathLike)
_HIDDEN = "(secret)"
_KEY = os.urandom(32)
# How many tokens are searched for in responses. One that was renewed more often is no
# longer in use.
_REMEMBERED = 16
_MIN_REDACTED = 8  # characters


def token_file(path: str | os.PathLike[str]) -> AskToken:
    """Return a `token` for `Client`: an async callable that reads the first line of a
    file at each call.

    The client calls it at its first request, and again after the service has rejected
    the token: so a file that something else renews need not be watched.

    Raises:
        ArgumentError: `path` is not a path.
    """
    file_path = expand_user(os.fspath(_path("path", path)))

    def first_line() -> str:
        with open(
            file_path, encoding="utf-8-sig"
        ) as file:  # editors write a byte order mark
            return file.readline().strip()

    async def read() -> str:
        return await asyncio.to_thread(first_line)

    return read


class Secret:
    """A token that no repr, str, format or pickle reveals."""

    __slots__ = ("_core", "_text", "digest")

    def __init__(self, text: str) -> None:
        text_bytes = text.encode()
        self._text = text
        # The longest run of letters and digits, which only `%61` and `\u0061` escape. A
        # shorter token may be a word: redacting it would alter data, codes and ids.
        runs = re.findall(b"[A-Za-z0-9]*", text_bytes)
        self._core = max(runs, key=len) if len(text) >= _MIN_REDACTED else None
        # By which this process alone recognizes the token.
        self.digest = blake2b(text_bytes, key=_KEY, digest_size=16).hexdigest()

    def bearer(self) -> str:
        """Return the value of the Authorization header (spec 5)."""
        return f"Bearer {self._text}"

    def may_occur_in(self, texts: Iterable[bytes]) -> bool:
        """Return whether the token may occur in one of these texts, and is redacted."""
        core = self._core
        return core is not None and any(core in text for text in texts)

    def has_text(self, text: str) -> bool:
        """Return whether the token is this text."""
        return self._text == text

    def pattern(self) -> str:
        """Return a regular expression for the forms in which a service may echo the
        token.

        Each character is unchanged or escaped: as in JSON (``\\u0061``, ``\\/``), once
        or twice, or as in URLs (``%61``), any number of times.
        """
        return "".join(map(_match_character, self._text))

    def __repr__(self) -> str:
        return f"Secret{_HIDDEN}"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled or copied")


class _Rejection(msgspec.Struct, eq=False):
    """That the service has rejected a token (401)."""

    token: Secret
    error: AuthenticationError  # the last one
    seen_at: float  # loop time
    until: float  # loop time until which it is not sent
    count: int  # how often it was rejected in a row


class Tokens:
    """The token of a client: a fixed one, or what an async callable returned last.

    The callable is called at first use, and again after the service has rejected its
    token: once for all waiting requests, and it is cancelled when no waiter is left.
    The same token is not sent again for 1, 2, 4, 8, 16 and then 30 seconds; then one
    request tries it.

    A token of any length is sent. One of less than 8 characters is not redacted in
    responses: it may be a word, and redacting it would alter texts and data.
    """

    def __init__(self, token: str | AskToken, *, timeout: float | None = None) -> None:
        self._timeout = timeout
        self._ask = None if isinstance(token, str) else token
        self._remembered: deque[Secret] = deque(maxlen=_REMEMBERED)
        self.held: Secret | None = (
            None  # the token to send; None: the callable has to be called
        )
        # Of the token last rejected, until the service accepts one.
        self._rejection: _Rejection | None = None
        self._asking: SingleFlight[str, Secret | str] = SingleFlight()
        if isinstance(token, str):
            if not _is_token(token):
                raise ArgumentError(f"token must be {_WANTED}; the value is not shown")
            self._keep(token)
        elif not is_async(token):
            description = (
                "a plain function: write async def"
                if inspect.isroutine(token)
                else type(token).__name__
            )
            raise ArgumentError(
                "token must be a str, or an async callable that returns one, not "
                f"{description}"
            )

    @property
    def digest(self) -> str:
        """`Secret.digest` of the token last sent, or an empty text."""
        return "" if self.held is None else self.held.digest

    @property
    def refused(self) -> bool:
        """Whether the service rejected the token last sent, and has accepted none
        since.
        """
        return self._rejection is not None

    @property
    def renewable(self) -> bool:
        """Whether a rejected token can be replaced."""
        return self._ask is not None

    def record(
        self, token: Secret, error: Exception | None, sent_at: float, now: float
    ) -> None:
        """Record what a response shows of the token that was sent with it, at a loop
        time.

        A response to a token that was replaced shows nothing of its successor.
        """
        rejection = self._rejection
        if isinstance(error, AuthenticationError):
            self._reject(token, error, sent_at, now)
        elif rejection is not None and sent_at >= rejection.seen_at:
            is_accepted = error is None or getattr(error, "has_error_object", False)
            if is_accepted and self._is_current(token):
                self._rejection = None

    def _reject(
        self, token: Secret, error: AuthenticationError, sent_at: float, now: float
    ) -> None:
        rejection, count = self._rejection, 0
        if rejection is not None and rejection.token is token:
            if sent_at < rejection.seen_at:  # sent together with the last one
                return
            count = rejection.count
        if not self._is_current(token):
            return
        until = now + growing_wait(count)
        self._rejection = _Rejection(token, error, now, until, count + 1)
        if self.renewable:
            self.held = None

    def _is_current(self, token: Secret) -> bool:
        """Whether no other token has replaced it, even if the callable is running."""
        return self.held is None or self.held is token

    def not_sent(self, now: float) -> AuthenticationError | None:
        """Return the error for a request with the token held, or None if that may be
        sent.
        """
        rejection = self._rejection
        if rejection is None or rejection.token is not self.held:
            return None
        if now >= rejection.until:
            return None
        error = copy(rejection.error)
        error.answered = error.has_error_object = False
        error.__dict__.pop("__notes__", None)
        error.add_note("not sent: the service has rejected this token")
        return error

    def take(self, now: float) -> Secret | None:
        """Return the token to send now, or None if there is none or it was
        rejected.
        """
        rejection = self._rejection
        if rejection is not None and rejection.token is self.held:
            if now < rejection.until:
                return None
            rejection.until = now + growing_wait(rejection.count)  # one request tries
        return self.held

    async def current(self, *, other_than: Secret | None = None) -> Secret:
        """Return the token to send; call the callable if there is none, or only the one
        that must be replaced.

        Raises:
            AuthenticationError: the callable raised, or returned no token.
        """
        if self.renewable and self.held is other_than:
            self.held = None
        if self.held is not None:
            return self.held
        outcome = await self._asking.share("token", self._call_source)
        if isinstance(outcome, str):
            # Each waiter raises a separate error, which is then completed with its
            # request.
            raise AuthenticationError(status=401, message=outcome, answered=False)
        return outcome

    def redact(self, response: Response) -> Response:
        """Return a response without this client's tokens, before anything else is made
        of it.
        """
        texts = [response.body, "\n".join(response.headers.values()).encode()]
        texts += [_unescape(text) for text in texts if b"%" in text or b"\\u00" in text]
        echoed_tokens = [
            secret for secret in self._remembered if secret.may_occur_in(texts)
        ]
        if not echoed_tokens:
            return response
        # Only now the expensive patterns, and only of tokens that may be there.
        # The longer first, since one may begin with another.
        patterns = sorted(
            (secret.pattern() for secret in echoed_tokens), key=len, reverse=True
        )
        redact = partial(re.compile("|".join(patterns).encode()).sub, _HIDDEN.encode())
        headers = {
            name: redact(value.encode()).decode()
            for name, value in response.headers.items()
        }
        return evolve(response, headers=headers, body=redact(response.body))

    async def _call_source(self) -> Secret | str:
        """Return the callable's token, or what went wrong, but not its message: it may
        contain a secret.
        """
        assert self._ask is not None
        timeout = asyncio.timeout(self._timeout)
        try:
            async with timeout:
                text = await self._ask()
        except (Exception, asyncio.CancelledError) as error:
            # This task was cancelled from outside. Any other cancellation was raised by
            # the callable.
            if (task := asyncio.current_task()) and task.cancelling():
                raise
            if timeout.expired():
                return f"the token callable returned nothing within {self._timeout:g} s"
            return f"the token callable raised {type(error).__name__}"
        if not _is_token(text):
            return (
                f"the token callable must return a str of {_WANTED}; what it returned "
                "is not shown"
            )
        return self._keep(text)

    def _keep(self, text: str) -> Secret:
        # The same text is the same object, so that its rejection still counts.
        for secret in self._remembered:
            if secret.has_text(text):
                self.held = secret
                return secret
        self.held = Secret(text)
        self._remembered.appendleft(self.held)
        return self.held


# Only printable ASCII characters: a token contains no others.
_IN_URLS = re.compile(rb"%(?:25)*([2-7][0-9A-Fa-f])")
# Of a run of backslashes only its first begins a match: a body may consist of them.
_IN_JSON = re.compile(rb"(?<!\\)\\++u00([2-7][0-9A-Fa-f])")


def _unescape(text: bytes) -> bytes:
    """Return a text without the escapes of letters and digits that `_escapes` names."""
    # One after the other: a pattern that begins with one character is found faster.
    return _IN_JSON.sub(_decode_escape, _IN_URLS.sub(_decode_escape, text))


def _decode_escape(escape: re.Match[bytes]) -> bytes:
    return bytes.fromhex(escape[1].decode())


def _match_character(character: str) -> str:
    """Return a regular expression for a character as it is, or escaped."""
    code = f"{ord(character):02x}"
    return (
        rf"(?:\\{{0,3}}{re.escape(character)}|(?i:%(?:25)*{code}|\\{{1,2}}u00{code}))"
    )


def _is_token(text: object) -> bool:
    return isinstance(text, str) and re.fullmatch(_PRINTABLE, text) is not None
