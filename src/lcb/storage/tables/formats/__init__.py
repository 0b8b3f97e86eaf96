"""The formats of tables: Parquet, delimited text, JSON lines, DataFrames."""
