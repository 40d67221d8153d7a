"""Views in Delta Lake tables, through `deltalake`: no JVM."""
