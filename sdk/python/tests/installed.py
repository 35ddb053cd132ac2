"""A host and its test, with nothing installed but the package: `check` runs it in an empty environment."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from portcullis_host import Host, Request, Response, change, labels
from portcullis_host.testing import BlockingDispatcher, cases

TABLE = """
- name: the team is labelled
  namespace: shop
  object: {metadata: {name: web}}
  expect: {allowed: true, object: {metadata: {name: web, labels: {team: shop}}}}
"""

host = Host("installed")


@host.mutate("team-label.example.com").create
def team_label(pod: dict[str, Any], request: Request) -> Response:
    """Labels a Pod with its namespace."""
    labels(pod)["team"] = request.namespace
    return change(request)


with TemporaryDirectory() as directory:
    file = Path(directory, "cases.yaml")
    file.write_text(TABLE)
    with BlockingDispatcher(host) as dispatcher:
        for case in cases(file):
            dispatcher.play(case)
unwanted = {"opentelemetry", "pydantic", "kubernetes", "jsonpatch"} & sys.modules.keys()
if unwanted:
    raise SystemExit(f"the package imports {unwanted}")
