"""The zstd module of the standard library, or before Python 3.14 the one that it was
made of.
"""

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["zstd"]
