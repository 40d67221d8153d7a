"""What the broker tells about itself, in numbers: counted where things happen, read when asked.

Who does something adds to a plain integer (`counts.py`, and counters beside the code that does
it); `families/` says what the numbers mean and reads them at a scrape; `exposition.py` writes
them as Prometheus wants them, `endpoint.py` serves that. Nothing here changes what the broker
does. `prometheus_client` is imported only once somebody listens: it costs as much as the broker.
"""
