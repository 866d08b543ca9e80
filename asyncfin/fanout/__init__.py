"""Many requests for one question."""
