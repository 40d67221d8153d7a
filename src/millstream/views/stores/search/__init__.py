"""Views in a full-text index, through `tantivy`."""
