"""Pure functions from panels to Arrow tables: what changed, what was known, and what is added up or joined."""
