"""Views in Parquet files, for everything that reads files."""
