"""Asks the hooks as a dispatcher does."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from imagepolicy import new_host

from portcullis_host import Host
from portcullis_host.testing import BlockingDispatcher, create, delete

PINNED, LOOSE = "nginx@sha256:0a", "nginx:1.29"


@pytest.fixture
def mesh(fake_dispatcher: Callable[[Host], BlockingDispatcher]) -> BlockingDispatcher:
    return fake_dispatcher(new_host([], None))


def pod(spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "shop", **metadata}, "spec": spec}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"containers": [{"image": PINNED}]}, None),
        ({"containers": [{"image": PINNED}, {"image": LOOSE}]}, "spec.containers[1].image"),
        ({"initContainers": [{"image": LOOSE}]}, "spec.initContainers[0].image"),
        ({"ephemeralContainers": [{"image": LOOSE}]}, "spec.ephemeralContainers[0].image"),
    ],
    ids=["by digest", "by tag", "by tag, at the start", "by tag, for a debugger"],
)
def test_every_image_of_a_pod_is_looked_at(mesh: BlockingDispatcher, spec: dict[str, Any], field: str | None) -> None:
    verdict = mesh.review("imagepolicy.example.com", create(pod(spec)))
    assert verdict.allowed == (field is None)
    if field:
        assert verdict.status.code == 403
        assert verdict.status.message == f"images are named by digest here: {LOOSE}"
        assert [cause.field for cause in verdict.status.details.causes] == [field]


def test_a_deletion_is_allowed(mesh: BlockingDispatcher) -> None:
    assert mesh.review("imagepolicy.example.com", delete(pod({"containers": [{"image": LOOSE}]}))).allowed
    assert mesh.review("team-label.example.com", delete(pod({}))).allowed


@pytest.mark.parametrize(
    ("metadata", "operations"),
    [
        ({}, [{"op": "add", "path": "/metadata/labels", "value": {"team": "shop"}}]),
        ({"labels": None}, [{"op": "replace", "path": "/metadata/labels", "value": {"team": "shop"}}]),
        ({"labels": {"a": "b"}}, [{"op": "add", "path": "/metadata/labels/team", "value": "shop"}]),
        ({"labels": {"team": "t"}}, []),
    ],
    ids=["no labels", "null", "other labels", "a team"],
)
def test_what_has_no_team_gets_its_namespaces(mesh: BlockingDispatcher, metadata: dict[str, Any], operations: list[Any]) -> None:
    verdict = mesh.review("team-label.example.com", create(pod({}, **metadata)))
    assert verdict.allowed
    assert json.loads(verdict.patch or b"[]") == operations
