"""Many entities to Parquet: resumable, incremental, counted beforehand
(docs/extraction.md).
"""
