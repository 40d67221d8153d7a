"""Views in a compacted topic, for every client of Kafka."""
