"""Pure functions from panels to Arrow tables: what changed, what was known, what is
joined or added up.
"""
