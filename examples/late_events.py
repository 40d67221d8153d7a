"""Late events: dropped, kept aside, or turned into a correction; counted in every case.

    python examples/late_events.py

Three topics have the same events and differ in what they declare. An event of 12:00 comes when the
time has moved on to 12:05. It prints

    drop        12:00 1
    drop        12:05 1
    quarantine  12:00 1
    quarantine  12:05 1
    correct     12:00 2
    correct     12:05 1
    in quarantine: {"at":"2025-07-01T12:00:30Z"}
"""

from datetime import datetime

from confluent_kafka import Consumer

import millstream as ms

POLICIES = ("drop", "quarantine", "correct")

app = ms.App("late_events")
for policy in POLICIES:
    app.topic(
        policy,
        schema="at TIMESTAMP",
        event_time="at",
        lateness="10 seconds",
        late=policy,
        idle="never",  # these events are of last year: the wall clock says nothing of them
    )

    @app.view(key="window", name=f"counts_{policy}", inputs={"events": policy})
    def counts(events):
        return events.groupBy(ms.windows.tumbling("1 minute")).count()


def happen(clock: str) -> None:
    for policy in POLICIES:
        app.publish(policy, {"at": datetime.fromisoformat(f"2025-07-01T{clock}Z")})


def quarantined() -> str:
    consumer = Consumer({**app.client_config, "group.id": "look", "auto.offset.reset": "earliest"})
    consumer.subscribe(["quarantine.late"])
    while (record := consumer.poll(1)) is None or record.error():
        pass
    consumer.close()
    return record.value().decode()


if __name__ == "__main__":
    with app:
        happen("12:00:10")
        happen("12:05:00")
        app.run(once=True)  # the watermark is now at 12:04:50
        happen("12:00:30")
        app.run(once=True)
        for policy in POLICIES:
            for row in app.view(f"counts_{policy}").scan():
                print(f"{policy:11} {row['window']['start']:%H:%M} {row['count']}")
        print("in quarantine:", quarantined())
