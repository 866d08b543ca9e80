"""Many companies to Parquet: resumable, incremental, counted beforehand (docs/extraction.md)."""
