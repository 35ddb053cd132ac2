"""The program of README.md does what the page says."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from portcullis_host import Host
from portcullis_host.testing import BlockingDispatcher, create

README = Path(__file__).parents[1] / "README.md"


def test_the_program_of_the_readme_passes_the_tests_of_the_readme(tmp_path: Path) -> None:
    text = README.read_text()
    for name, language, start in (
        ("policy.py", "python", "# policy.py"),
        ("test_policy.py", "python", "# test_policy.py"),
        ("cases.yaml", "yaml", ""),
    ):
        found = re.search(rf"```{language}\n({start}.*?)```", text, re.DOTALL)
        assert found is not None, name
        (tmp_path / name).write_text(found[1])
    said = subprocess.run([sys.executable, "-m", "pytest", "--rootdir=."], cwd=tmp_path, check=False, capture_output=True, text=True)
    assert "2 passed" in said.stdout, said.stdout


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
