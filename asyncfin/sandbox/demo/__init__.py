"""The demo dataset: public figures of three companies; `SOURCES.md` shows where they
come from.
"""

from __future__ import annotations

from importlib import resources

from asyncfin.sandbox.dataset import DatasetFile, load

_FILES = ("apple.json.gz", "nvidia.json.gz", "alphabet.json.gz")


def demo_datasets() -> tuple[DatasetFile, ...]:
    """Return the datasets of Apple, NVIDIA and Alphabet, in this order; NVIDIA's has
    two publications.
    """
    folder = resources.files(__name__)
    return tuple(load((folder / name).read_bytes()) for name in _FILES)
