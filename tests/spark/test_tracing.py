"""Traces from publish to view, as a collector of OpenTelemetry gets them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.trace_collector import TraceCollector

pytestmark = pytest.mark.full

PROGRAM = """
import sys
import millstream
from millstream.base.tracing import span, trace_id_now

app = millstream.App("shop", data="data")
app.topic("clicks", schema="user STRING NOT NULL, url STRING", key="user", partitions=2)

@app.view(key="url")
def per_url(clicks):
    return clicks.groupBy("url").count()

if __name__ == "__main__":
    rows = [{"user": f"u{at}", "url": "/"} for at in range(3)]
    receipts = [app.publish("clicks", one) for one in rows]
    app.run(once=True)
    with app.view("per_url") as view:
        assert view.get("/", after=receipts)["count"] == 3
    app.close()
    print(sorted(name for name in sys.modules if name.startswith("opentelemetry"))[:1])
"""


def run_program(folder: Path, **env: str) -> str:
    file = folder / "shop.py"
    file.write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(file)],
        cwd=folder,
        env=os.environ | {"MILLSTREAM_SPARK_QUICK_START": "true"} | env,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_batch_is_linked_to_what_published_its_records(tmp_path: Path) -> None:
    with TraceCollector() as collector:
        run_program(
            tmp_path,
            MILLSTREAM_TELEMETRY_TRACES="true",
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
        )
    published = collector.named("publish clicks")
    assert len(published) == 3
    batches = collector.named("batch of shop.per_url")
    links = {(one.trace_id, one.span_id) for batch in batches for one in batch.links}
    assert links == {(one.trace_id, one.span_id) for one in published}
    [batch] = [one for one in batches if one.links]
    written = {one.parent_span_id: one for one in collector.named("write the view")}
    write = written[batch.span_id]
    assert write.trace_id == batch.trace_id
    assert batch.start_time_unix_nano <= write.start_time_unix_nano
    assert write.end_time_unix_nano <= batch.end_time_unix_nano
    assert collector.named("read per_url after a write")
    assert collector.services == {"shop"}


def test_nothing_of_opentelemetry_is_imported_if_traces_are_off(tmp_path: Path) -> None:
    assert run_program(tmp_path).splitlines()[-1] == "[]"
