"""The fixture of pytest for hosts of a Portcullis mesh. It imports the SDK only in tests that use it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from portcullis_host import Host
    from portcullis_host.testing import BlockingDispatcher


@pytest.fixture
def portcullis_dispatcher() -> Iterator[Callable[[Host], BlockingDispatcher]]:
    """Runs hosts until the end of the test: ``portcullis_dispatcher(host).review(hook, request)``. The hosts have to drain cleanly."""
    from portcullis_host.testing import BlockingDispatcher  # noqa: PLC0415 (see above)

    with ExitStack() as stack:
        yield lambda host: stack.enter_context(BlockingDispatcher(host))
