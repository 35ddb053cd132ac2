"""The fixture of pytest."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from portcullis_host._host import Host
from portcullis_host.testing._blocking import BlockingDispatcher


@pytest.fixture
def fake_dispatcher() -> Iterator[Callable[[Host], BlockingDispatcher]]:
    """Runs hosts until the end of the test: ``fake_dispatcher(host).review(hook, request)``. The hosts have to drain cleanly."""
    with ExitStack() as stack:
        yield lambda host: stack.enter_context(BlockingDispatcher(host))
