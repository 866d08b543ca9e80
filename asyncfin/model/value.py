"""One observation and where it comes from (spec 2.4)."""

from msgspec import Struct

from asyncfin.errors import printable
from asyncfin.model.period import Period


class Source(Struct, frozen=True, gc=False):
    """A reference to the origin of a value (spec 2.4).

    Attributes:
        item_id: the id of the item.
        row_index: the row in it; None if the service does not state it.
        column_index: the column in it, likewise.
    """

    item_id: str
    row_index: int | None = None
    column_index: int | None = None


# gc=False: an answer has millions, none in a cycle, and each collection would walk
# through them.
class Value(Struct, frozen=True, gc=False, kw_only=True):
    """One observation (spec 2.4). ``str(value)`` is its text, or its number if the text
    is blank.

    Attributes:
        number: the value. A reported zero is 0. Whole numbers stay exact. One that is
            too large for a float (10**400) is rejected as malformed. One that is too
            close to zero for a float (1e-400) is read as 0.0.
        text: the value as the service formats it.
        number_format: its display pattern, not a scale: `number` is complete as it is.
        fill_type: how it was obtained; an open set of words.
        value_version: ``"original"`` or ``"latest_restated"``, as the service labels
            it.
        report_period: the period in which it was reported, of duration 0; None if the
            service does not state one.
        sources: where it comes from, in the service's order.

    Texts and sources that the service does not send are ``""`` and ``()``.
    """

    number: int | float
    text: str = ""
    number_format: str = ""
    fill_type: str = ""
    value_version: str
    report_period: Period | None = None
    sources: tuple[Source, ...] = ()

    def __str__(self) -> str:
        return printable(shown_text(self))


def shown_text(value: Value) -> str:
    """Return the text of a value; its number if the text is blank, which would read as
    a gap.
    """
    return value.text if value.text.strip() else str(value.number)
