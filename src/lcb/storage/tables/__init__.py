"""Streams Parquet, CSV and JSON-lines tables in batches."""
