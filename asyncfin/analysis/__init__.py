"""Pure functions from panels to Arrow tables: what changed, and what was known."""
