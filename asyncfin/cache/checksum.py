"""Checksums of cached entries: one that is damaged, or was stored under another key, is refused."""

from hashlib import blake2b


def checksum(*content: str | bytes) -> bytes:
    """Return a checksum of 16 bytes over texts and bytes, each preceded by its length."""
    digest = blake2b(digest_size=16)
    for each in content:
        part = each if isinstance(each, bytes) else repr(each).encode("utf-8", "surrogatepass")
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()


def verified(stored: object, body: object, *key: str | bytes) -> bytes | None:
    """Return the body of a row; None if it is corrupt: its checksum is not that of this key and body."""
    # SQLite returns a corrupt blob as the type that its corrupt header names.
    return body if isinstance(body, bytes) and stored == checksum(*key, body) else None
