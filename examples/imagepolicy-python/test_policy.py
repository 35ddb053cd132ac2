"""Asks the hooks as a dispatcher does."""

from collections.abc import Callable
from pathlib import Path

import pytest
from policy import new_host

from portcullis_host import Host
from portcullis_host.testing import BlockingDispatcher, Case, cases


@pytest.fixture
def dispatcher(portcullis_dispatcher: Callable[[Host], BlockingDispatcher]) -> BlockingDispatcher:
    return portcullis_dispatcher(new_host([], None))


# The file has the same cases as the policy in other languages.
@pytest.mark.parametrize("case", cases(Path(__file__).with_name("cases.yaml")), ids=str)
def test_the_policy_decides_its_cases(dispatcher: BlockingDispatcher, case: Case) -> None:
    dispatcher.play(case)


def test_the_mesh_may_ask_for_the_label_ahead_of_its_turn(dispatcher: BlockingDispatcher) -> None:
    offers = {hook.name: hook.speculate for hook in dispatcher.hello.hooks}
    assert offers == {"imagepolicy.example.com": False, "team-label.example.com": True}
