"""The data model: values only, no I/O and no JSON (spec 2 and the selections of spec
4.3).
"""
