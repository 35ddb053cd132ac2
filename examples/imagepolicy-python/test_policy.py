"""Asks the hooks as a dispatcher does."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from policy import new_host

from portcullis_host import Host
from portcullis_host.testing import BlockingDispatcher, Verdict, create, delete, update

# Those of the same policy in other languages.
CASES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("cases.json").read_bytes())


@pytest.fixture
def dispatcher(portcullis_dispatcher: Callable[[Host], BlockingDispatcher]) -> BlockingDispatcher:
    return portcullis_dispatcher(new_host([], None))


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_the_policy_decides_its_cases(dispatcher: BlockingDispatcher, case: dict[str, Any]) -> None:
    request = {
        "CREATE": lambda: create(case["object"]),
        "UPDATE": lambda: update(case["oldObject"], case["object"]),
        "DELETE": lambda: delete(case["oldObject"]),
    }[case["operation"]]()
    assert verdict_of(dispatcher.review(case["hook"], request)) == case["verdict"]


def verdict_of(response: Verdict) -> dict[str, Any]:
    verdict: dict[str, Any] = {"allowed": response.allowed}
    if not response.allowed:
        causes = [{"field": cause.field, "message": cause.message} for cause in response.causes]
        verdict["status"] = {"code": response.code, "message": response.message, "causes": causes}
    if response.patch:
        verdict["patch"] = response.patch
    return verdict


def test_the_mesh_may_ask_for_the_label_ahead_of_its_turn(dispatcher: BlockingDispatcher) -> None:
    offers = {hook.name: hook.speculate for hook in dispatcher.hello.hooks}
    assert offers == {"imagepolicy.example.com": False, "team-label.example.com": True}
