"""The access token: its source, its renewal, and its redaction."""

from __future__ import annotations

import asyncio
import os
import re
from collections import deque
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from html import unescape
from math import inf
from typing import NoReturn, TypeAlias

import msgspec
from msgspec.structs import replace

from asyncfin.checks import expand_user, instance_of, is_async
from asyncfin.errors import ArgumentError, AuthenticationError
from asyncfin.tasks import SingleFlight
from asyncfin.wire.codec import not_json
from asyncfin.wire.protocol import Response
from asyncfin.wire.retry import copy_unsent, growing_wait

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
_HIDDEN = b"(secret)"
# A longer body that is no JSON object is not the service's, and is not searched.
_MAX_ERROR_BYTES = 64 * 1024
_TOO_LONG = b"(a body of more than 64 KiB)"
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


class _Rejection(msgspec.Struct):
    """A rejection of a token (401)."""

    error: AuthenticationError  # the last one
    seen_at: float  # loop time
    until: float  # loop time until which it is not sent
    count: int  # how often it was rejected in a row


class Secret:
    """A token that no repr, str, format or pickle reveals, and its rejection.

    A rejected token is not sent again for 1, 2, 4, 8, 16 and then 30 seconds; then one
    request tries it.
    """

    __slots__ = ("accepted_at", "core", "digest", "pattern", "rejection", "text")

    def __init__(self, text: str) -> None:
        text_bytes = text.encode()
        self.text = text
        # The longest run of letters and digits, which only `%61` and `\u0061` escape. A
        # shorter token may be a word: redacting it would alter data, codes and ids.
        runs = re.findall(b"[A-Za-z0-9]*", text_bytes)
        self.core = max(runs, key=len) if len(text) >= _MIN_REDACTED else None
        self.pattern = "".join(map(_match_character, text)).encode()
        # By which this process alone recognizes the token.
        self.digest = blake2b(text_bytes, key=_KEY, digest_size=16).hexdigest()
        self.rejection: _Rejection | None = None  # until the service accepts it
        self.accepted_at = -inf  # when the last accepted request was sent, loop time

    def record(self, error: Exception | None, sent_at: float, now: float) -> None:
        """Record what the response to a request with this token shows of it, at a loop
        time. The later request counts.
        """
        rejection, count = self.rejection, 0
        if rejection is not None:
            if sent_at < rejection.seen_at:  # sent together with the rejected one
                return
            count = rejection.count
        if isinstance(error, AuthenticationError):
            if sent_at >= self.accepted_at:
                until = now + growing_wait(count)
                self.rejection = _Rejection(error, now, until, count + 1)
        elif error is None or getattr(error, "has_error_object", False):
            self.rejection = None
            self.accepted_at = max(sent_at, self.accepted_at)

    def not_sent(self, now: float) -> AuthenticationError | None:
        """Return the error for a request while the token may not be sent."""
        rejection = self.rejection
        if rejection is None or now >= rejection.until:
            return None
        error = copy_unsent(rejection.error)
        error.add_note("not sent: the service has rejected this token")
        return error

    def claim(self, now: float) -> bool:
        """Return whether a request may be sent with the token now."""
        rejection = self.rejection
        if rejection is not None:
            if now < rejection.until:
                return False
            rejection.until = now + growing_wait(rejection.count)  # one request tries
        return True

    def __repr__(self) -> str:
        return "Secret(secret)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled or copied")


class Tokens:
    """The token of a client: a fixed one, or what an async callable returned last.

    The callable is called at first use, and while the service rejects its last token:
    once for all waiting requests, and it is cancelled when no waiter is left.

    A token of any length is sent. One of less than 8 characters is not redacted in
    responses: it may be a word, and redacting it would alter texts and data.
    """

    def __init__(self, token: str | AskToken, *, timeout: float | None = None) -> None:
        self._timeout = timeout
        self._ask = None if isinstance(token, str) else token
        self.is_renewable = self._ask is not None
        self._remembered: deque[Secret] = deque(maxlen=_REMEMBERED)
        self.held: Secret | None = None  # the last one
        self._asking: SingleFlight[str, Secret | str] = SingleFlight()
        if isinstance(token, str):
            if not _is_token(token):
                raise ArgumentError(f"token must be {_WANTED}; the value is not shown")
            self._keep(token)
        elif not is_async(token):
            raise ArgumentError(
                "token must be a str, or an async callable that returns one, not of "
                f"class {type(token).__name__}"
            )

    async def current(self) -> Secret:
        """Return the token; call the callable if there is none, or if the service has
        rejected it.

        Raises:
            AuthenticationError: the callable raised, or returned no token.
        """
        token = self.held
        if token is not None and (token.rejection is None or self._ask is None):
            return token
        outcome = await self._asking.share("token", self._call_source)
        if isinstance(outcome, str):
            # Each waiter raises a separate error, which is then completed with its
            # request.
            raise AuthenticationError(status=401, message=outcome, answered=False)
        return outcome

    def redact(self, response: Response) -> Response:
        """Return a response without this client's tokens, before anything else is made
        of it.

        A body or header with a token in other escapes than those of JSON or URLs, or in
        mixed ones, is replaced as a whole. Such escapes are not looked for in a page of
        data without the token's longest run of letters and digits: it takes too long.
        So is a body that is not data with a token in pieces, or with a NUL byte.
        A body of more than 64 KiB that is neither data nor a JSON object is dropped
        unsearched.
        """
        body = response.body
        is_data = 200 <= response.status < 300 and not not_json(body)
        if not is_data:
            is_object = body.lstrip().startswith(b"{")
            if len(body) > _MAX_ERROR_BYTES and not is_object:
                body = _TOO_LONG
            elif b"\0" in body:  # of UTF-16, say, in which the token has another form
                body = _HIDDEN
        header_text = "\n".join(response.headers.values()).encode()
        texts = [body, header_text]
        for text in texts[:2]:
            plain_text = _decode_escapes(text)
            if plain_text is not text:  # there were escapes
                texts.append(plain_text)
        # The expensive patterns are only for tokens that may be there.
        secrets = []
        for secret in self._remembered:
            for text in texts:
                if secret.core is not None and secret.core in text:
                    secrets.append(secret)
                    break
        if is_data and not secrets:
            return response
        # One token may begin with another.
        secrets.sort(key=lambda secret: len(secret.text), reverse=True)
        pattern = b"|".join(secret.pattern for secret in secrets)
        tokens = [_decode_all(secret.text.encode()) for secret in self._remembered]

        def hide(text: bytes) -> bytes:
            if pattern:
                text = re.sub(pattern, _HIDDEN, text)
            forms = [_decode_all(text)]
            if not is_data:
                forms.append(_BETWEEN.sub(b"", forms[0]))
            for token in tokens:
                for form in forms:
                    if len(token) >= _MIN_REDACTED and token in form:
                        return _HIDDEN
            return text

        headers = {
            name: hide(value.encode()).decode()
            for name, value in response.headers.items()
        }
        return replace(response, headers=headers, body=hide(body))

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
            if secret.text == text:
                self.held = secret
                return secret
        self.held = Secret(text)
        self._remembered.appendleft(self.held)
        return self.held


# Only printable ASCII characters: a token contains no others.
_IN_URLS = re.compile(rb"%(?:25)*([2-7][0-9A-Fa-f])")
# At most two backslashes, as `_match_character` has: a body may consist of them.
_IN_JSON = re.compile(rb"\\\\?u00([2-7][0-9A-Fa-f])")
# How often an escape may be within another.
_NESTING = 3
# What can split a token: tags, whitespace and invisible marks.
_BETWEEN = re.compile(rb"<[^<>]*>|[^\x21-\x7e]")


def _decode_escape(escape: re.Match[bytes]) -> bytes:
    return bytes.fromhex(escape[1].decode())


def _decode_escapes(text: bytes) -> bytes:
    # One after the other: what begins with one literal character is found ten times as
    # fast, and its absence thirty times.
    if b"%" in text:
        text = _IN_URLS.sub(_decode_escape, text)
    if b"\\" in text:
        text = _IN_JSON.sub(_decode_escape, text)
    return text


def _decode_all(text: bytes) -> bytes:
    """Return a text without the escapes of HTML, URLs and JSON, also nested ones.

    Other characters than those of a token may be lost.
    """
    for _ in range(_NESTING):
        plain_text = unescape(text.decode("latin-1"))
        text = _decode_escapes(plain_text.encode("ascii", "ignore"))
    return text.replace(b"\\", b"")


def _match_character(character: str) -> str:
    """Return a regular expression for a character of a token that is echoed.

    It is unchanged or escaped: as in JSON (``\\u0061``, ``\\/``), once or twice, or as
    in URLs (``%61``), any number of times.
    """
    code = f"{ord(character):02x}"
    return (
        rf"(?:\\{{0,3}}{re.escape(character)}|(?i:%(?:25)*{code}|\\{{1,2}}u00{code}))"
    )


def _is_token(text: object) -> bool:
    return isinstance(text, str) and re.fullmatch(_PRINTABLE, text) is not None
