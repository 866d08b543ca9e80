"""A query and a catalogue in, batches out: pure."""
