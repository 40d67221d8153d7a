"""A group member in a process of its own, to be killed: polls and keeps what it is assigned.

python -m tests.clients.group_member BOOTSTRAP GROUP TOPIC
"""

import sys

from tests.clients.steps import open_consumer


def main(bootstrap: str, group: str, topic: str) -> None:
    consumer = open_consumer(bootstrap, group)
    consumer.subscribe([topic])
    while True:
        consumer.poll(0.1)


if __name__ == "__main__":
    main(*sys.argv[1:])
