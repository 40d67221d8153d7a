"""A consistency checker in the manner of Jepsen's Kafka workload.

Clients in processes of their own write and read while the broker and the clients themselves are
killed, paused and replaced. Each writes down what it asked and what it was told. Afterwards the
whole history is held against what Kafka promises; docs/consistency.md says which anomalies are
looked for.

    history, history_file         what happened: the types, and their way to and from a file
    facts, *_checks, cycles       PURE: what follows from a history, and what is wrong with it
    anomaly, checker              PURE: the names of what can be wrong; a history in, a report out
    client                        a client process, by its role; from these parts:
      writing, reading              producers and consumers that write down what they do
      newer_flow                    transactions by KIP-890, which librdkafka has not
      places, patience              partitions by name; a broker that comes and goes
    clients                       all client processes: start, pause, kill, replace, end
    broker_under_test, nemesis    the broker that is hurt, and what hurts it
    planted, replacing            the launcher of that broker; bugs planted into it
    sync_journal                  losing what was not synced
    run                           one run, from an empty broker to a history
"""
