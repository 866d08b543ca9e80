"""A question and a catalogue in, queries out: pure."""
