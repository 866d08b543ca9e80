"""The series of the demo companies by names that people can read: their ids say nothing."""

from hashlib import sha256

from asyncfin.sandbox.demo import demo_datasets

ENTITIES = tuple(each.entity_id for each in demo_datasets())


def demo_id(name: str, company: int = 0) -> str:
    """Return the id of a series of Apple (0), NVIDIA or Alphabet: of "Revenue/iPhone/annual", say."""
    return "S-" + sha256(f"{ENTITIES[company]} {name}".encode()).hexdigest()[:16]


def demo_row(name: str) -> str:
    """Return the text by which the explorer selects a series: of "Revenue/Americas/annual", say."""
    metric, *scope, cadence = name.split("/")
    if scope:
        return f"{metric}/{cadence}.segment/segment={scope[0]}"
    return f"{metric}/{cadence}.consolidated/company=consolidated"
