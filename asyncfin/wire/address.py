"""Where the service is, through which proxy it is reached, and how a client names
itself to it.
"""

from __future__ import annotations

import re
import warnings
from ipaddress import ip_address, ip_network
from urllib.request import getproxies, proxy_bypass

from yarl import URL

from asyncfin import checks
from asyncfin.errors import ArgumentError

_STRANGE = r"[\s\x00-\x1f?#]"


def check_base_url(base_url: str, *, allow_http: bool = False) -> str:
    """Return `base_url` without its trailing slash, or raise ArgumentError.

    It must be https, or http to this machine (with `allow_http`, which warns, to any);
    without credentials, query, fragment or blanks; and not end in /v1.
    """
    if not isinstance(base_url, str):
        raise ArgumentError(
            f"base_url must be a str, not of class {type(base_url).__name__}"
        )
    # The value may be a token, or contain a password.
    url = _parse_url(base_url)
    if (
        url is None
        or url.scheme not in ("http", "https")
        or not url.host
        or url.user is not None
        or url.password is not None
        or re.search(_STRANGE, base_url)
    ):
        raise ArgumentError(
            "base_url must be https://host, or http://127.0.0.1 for this machine, with "
            "a port and a path at most, and no password; its value is not shown"
        )
    if url.path.rstrip("/").endswith("/v1"):
        # The service would respond with 404, which reads like an unknown entity.
        raise ArgumentError("base_url must not end in /v1: every path begins with it")
    if url.scheme == "http" and not _is_loopback(url.host):
        if not allow_http:
            raise ArgumentError(
                "base_url must be https, unless the host is this machine or the "
                "option `allow_http` is set"
            )
        # The level of the warning is that of the code which made the client.
        warnings.warn(
            f"{url} is not encrypted: anyone in between can read the token",
            stacklevel=4,
        )
    return str(url).rstrip("/")


def _parse_url(text: str) -> URL | None:
    try:
        return URL(text)
    except ValueError:
        return None


def _is_loopback(host: str) -> bool:
    try:
        return host.lower() == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def environment_proxy(base_url: str) -> str | None:
    """Return the proxy that the environment names for `base_url`, if it names one.

    It is aiohttp's trust_env without the netrc file, and never for http: the token
    would leave in the clear.
    """
    url = URL(base_url)
    proxy = getproxies().get(url.scheme)
    if proxy is None or url.scheme == "http" or _is_excepted(url):
        return None
    # As curl and requests take it: many environments name a proxy by host and port
    # alone.
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    address = _parse_url(proxy)
    if (
        address is None
        or address.scheme not in ("http", "https")
        or not address.host
        or "#" in proxy
    ):
        raise ArgumentError(
            f"{url.scheme}_proxy in the environment must be an http or https URL; its "
            "value is not shown"
        )
    return proxy


def _is_excepted(url: URL) -> bool:
    """Return whether no_proxy, or the system, excepts a host.

    Beside what urllib knows (names, domains, ports, ``*``): networks, addresses in
    brackets, and names with a final dot.
    """
    if proxy_bypass(url.authority):
        return True
    host = (url.host or "").rstrip(".")
    text = getproxies().get("no", "").lower().replace("[", "").replace("]", "")
    for entry in text.split(","):
        name = entry.strip().replace(".:", ":").strip(".")
        # With its port too, and with the domains that it is in.
        domains = (f".{host}", f".{host}:{url.port}")
        if name and any(domain.endswith(f".{name}") for domain in domains):
            return True
        if _is_within(host, name.removesuffix(f":{url.port}")):
            return True
    return False


def _is_within(host: str, network: str) -> bool:
    """Return whether a host is an address within a network."""
    try:
        return ip_address(host) in ip_network(network, strict=False)
    except ValueError:
        return False


# What a header can carry, without a blank at an end: it would be lost.
check_user_agent = checks.Check(
    "1 to 200 printable ASCII characters without a blank at an end",
    lambda value: (
        isinstance(value, str)
        and re.fullmatch(r"(?! )[\x20-\x7e]{1,200}(?<! )", value) is not None
    ),
).optional()
