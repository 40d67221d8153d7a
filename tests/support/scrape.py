"""A scrape as Prometheus does it: one GET, read by prometheus_client's own parsers."""

from urllib.request import Request, urlopen

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
WITHIN_S = 20.0


class Scrape:
    """The samples of one moment, by name and labels."""

    def __init__(self, url: str, *, accept: str = "") -> None:
        request = Request(url, headers={"Accept": accept} if accept else {})
        with urlopen(request, timeout=WITHIN_S) as answer:
            self.content_type: str = answer.headers["Content-Type"]
            self.text: str = answer.read().decode()
        parse = openmetrics if accept == OPENMETRICS else plain_text
        self._samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in parse(self.text)
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float | None:
        """None if there is no such series."""
        return self._samples.get((name, frozenset(labels.items())))

    def series(self, name: str) -> dict[frozenset[tuple[str, str]], float]:
        return {labels: value for (one, labels), value in self._samples.items() if one == name}
