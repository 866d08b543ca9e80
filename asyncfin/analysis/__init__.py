"""Functions from panels to Arrow tables: what changed, what was reported when, what is
joined or added up; and the last periods of cached series, for a search.
"""
