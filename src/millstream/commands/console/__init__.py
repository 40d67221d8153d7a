"""What the console shows of an App and its broker: `web/console/ports.py`, joined to both."""
