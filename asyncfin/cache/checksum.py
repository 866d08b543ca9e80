"""The rows of a store: a checksum, and the body. A damaged row, or one of another key,
is refused.
"""

from hashlib import blake2b

_BYTES = 16


def sealed(body: bytes, *key: str | bytes) -> bytes:
    """Return the row of a body: its checksum, which is over the key too, and the
    body.
    """
    return checksum(*key, body) + body


def verified(row: bytes, *key: str | bytes) -> bytes | None:
    """Return the body of a row, or None if its checksum is not that of this key and
    body.
    """
    body = row[_BYTES:]
    return body if row[:_BYTES] == checksum(*key, body) else None


def checksum(*content: str | bytes) -> bytes:
    """Return a checksum over texts and bytes, each preceded by its length."""
    digest = blake2b(digest_size=_BYTES)
    for item in content:
        part = (
            item
            if isinstance(item, bytes)
            else repr(item).encode("utf-8", "surrogatepass")
        )
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()
