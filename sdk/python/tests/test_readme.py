"""The program of README.md does what the page says."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from portcullis_host import Host
from portcullis_host.testing import BlockingDispatcher, create

README = Path(__file__).parents[1] / "README.md"


def test_the_program_of_the_readme_serves(portcullis_dispatcher: Callable[[Host], BlockingDispatcher]) -> None:
    found = re.search(r"```python\n(.*?)asyncio\.run\(", README.read_text(), re.DOTALL)
    assert found is not None
    program: dict[str, Any] = {}
    exec(found[1], program)  # noqa: S102 (it is ours)
    dispatcher = portcullis_dispatcher(program["host"])
    pod = create({"kind": "Pod", "metadata": {"namespace": "shop"}, "spec": {"hostNetwork": True}})
    assert dispatcher.review("host-network.example.com", pod).message == "hostNetwork is not allowed here"
    patch = dispatcher.review("team-label.example.com", pod).patch
    assert patch == [{"op": "add", "path": "/metadata/labels", "value": {"team": "shop"}}]


def test_the_initializer_of_the_readme_initializes(portcullis_dispatcher: Callable[[Host], BlockingDispatcher]) -> None:
    found = re.search(r"## Initializers.*?```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert found is not None
    program: dict[str, Any] = {}
    exec(found[1], program)  # noqa: S102 (it is ours)
    dispatcher = portcullis_dispatcher(program["host"])
    pod = dispatcher.review("sidecar.example.com", create({"kind": "Pod", "spec": {"containers": []}})).object
    assert pod["spec"]["containers"] == [{"name": "proxy", "image": "registry.example.com/proxy:1"}]
    refused = dispatcher.review("sidecar.example.com", create({"kind": "Pod", "spec": {"hostNetwork": True}}))
    assert refused.message == "the sidecar has no place in the network of the node"
