"""A work queue: jobs that fail come again, and those that cannot be done are kept with the reason.

    python examples/work_queue.py

One mail fails at first and is sent at the second try; one has no address. It prints

    sent to ada@example.org
    no answer from grace's server: again later
    sent to grace@example.org
    dead: nobody, not an address
"""

from millstream import App, Job

app = App("work_queue")  # a broker of its own, with data in ./work_queue.millstream


def send(job: Job) -> None:
    """What raises comes again: to this worker or to any other."""
    to = job.value["to"]
    if "@" not in to:
        job.reject("not an address")  # never again: a dead letter
        return
    with job:  # acknowledged at the end, released by an error
        if to.startswith("grace") and job.delivery_count == 1:
            raise ConnectionError("no answer from grace's server")
        print("sent to", to)


def main() -> None:
    with app:
        mails = app.queue("mails", retry_delay=0.1, partitions=1)
        mails.put_many([{"to": "ada@example.org"}, {"to": "grace@example.org"}, {"to": "nobody"}])
        while (job := mails.get(timeout=5)) is not None:
            try:
                send(job)
            except ConnectionError as error:
                print(f"{error}: again later")
        for letter in mails.dead_letters():
            print(f"dead: {letter.value['to']}, {letter.death.reason}")


if __name__ == "__main__":
    main()
