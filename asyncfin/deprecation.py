"""Replacing a public name or argument: the old one works for two more minor releases,
with a warning.
"""

import warnings


def warn_deprecated(old: str, instead: str, *, removed_in: str) -> None:
    """Warn the caller of the calling function that what it uses is deprecated.

    Args:
        old: what is deprecated, as users write it, such as ``Client(pace=...)``.
        instead: what to write in its place.
        removed_in: the first release without it, at least two minor releases after this
            one.
    """
    message = (
        f"{old} is deprecated and will be removed in asyncfin {removed_in}; write "
        f"{instead}"
    )
    # The level of the user's line: this function, the deprecated one, its caller.
    warnings.warn(message, DeprecationWarning, stacklevel=3)
