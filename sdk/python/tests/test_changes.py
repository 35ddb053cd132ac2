"""Changes of objects: the vectors of sdk/conformance/changes.json, and properties of any change."""

# pyright: basic

import copy
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonpatch
import pydantic
import pytest
from kubernetes.client import V1Container, V1Pod

from portcullis_host import HandlerError, Response, change, difference
from portcullis_host._changes import SMALL_PATCH, equal, merge, read
from portcullis_host._changes import change as changed
from portcullis_host.testing import create, delete, request

FILE = Path(os.environ.get("PORTCULLIS_CHANGES") or Path(__file__).parents[2] / "conformance" / "changes.json")
VECTORS: list[dict[str, str]] = json.loads(FILE.read_text())


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_vector(vector: dict[str, str]) -> None:
    raw, after = vector["raw"].encode(), read(vector["after"].encode())
    before = read(vector["before"].encode()) if "before" in vector else read(raw)
    want, patch = read(vector["object"].encode()), read(vector["patch"].encode())
    assert equal(merge(read(raw), before, after), want)
    assert equal(read(changed(raw, before, after) or b"[]"), patch)
    assert equal(jsonpatch.apply_patch(read(raw), patch), want)
    if "before" not in vector:
        assert equal(read(changed(raw, None, after) or b"[]"), patch), "an object that was changed in place"


def operations(response: Response) -> Any:
    return json.loads(response.patch or b"[]")


def test_of_items_with_equal_keys_the_first_that_is_left_is_meant() -> None:
    raw = [{"port": 80}, {"port": 53, "later": 1}, {"port": 53, "p": "b", "later": 2}]
    before = [{"port": 80}, {"port": 53}, {"port": 53, "p": "b"}]
    assert merge(raw, before, [{"port": 53, "p": "c"}]) == [{"port": 53, "p": "c", "later": 1}]


def test_what_was_changed_in_place_is_the_patch() -> None:
    asked = request(create('{"a": 1, "big": 12345678901234567890, "f": 1.10, "list": [1, 2]}'))
    document = asked.object
    assert document is not None
    document["a"], document["list"] = True, [2]
    assert operations(change(asked)) == [
        {"op": "replace", "path": "/a", "value": True},
        {"op": "remove", "path": "/list/0"},
    ]


def test_what_nobody_looked_at_was_not_changed() -> None:
    assert change(request(create("no object"))).patch == b""
    assert change(request(delete({}))).patch == b""
    asked = request(create({"a": {"b": [1, {"c": None}]}}))
    assert difference(asked, asked.object or {}).patch == b""


def test_warnings_and_annotations_go_with_a_change() -> None:
    asked = request(create({"a": 1}))
    for made in (change(asked, warnings=["w"], audit={"k": "v"}), difference(asked, {"a": 2}, warnings=["w"], audit={"k": "v"})):
        assert (made.warnings, made.audit) == (("w",), {"k": "v"})


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1 2", "", "{'a': 1}"])
def test_what_is_no_json_is_no_object(text: str) -> None:
    with pytest.raises(HandlerError, match="not valid JSON"):
        _ = request(create(f'{{"a": {text}}}')).object


def test_a_request_without_an_object_has_no_difference() -> None:
    with pytest.raises(ValueError, match="without an object"):
        difference(request(delete({})), {})


@pytest.mark.parametrize(
    ("document", "edit", "why"),
    [
        ({}, lambda o: o.update(a=float("nan")), "JSON"),
        ({}, lambda o: o.update(a={1, 2}), "JSON"),
        ({}, lambda o: o.update(a=object()), "JSON"),
        ({}, lambda o: o.update({1: 2}), "int"),
        ('{"a": [0.12345678901234567890, 1]}', lambda o: o.update(a=o["a"][::-1]), "round"),
    ],
)
def test_what_cannot_be_written_is_a_failure(document: Any, edit: Callable[[Any], None], why: str) -> None:
    asked = request(create(document))
    edit(asked.object)
    with pytest.raises((ValueError, TypeError, AttributeError, HandlerError), match=why):
        change(asked)


def test_a_number_that_is_rounded_stays_as_it_is() -> None:
    asked = request(create('{"a": [0.12345678901234567890, 1e400], "b": 1.0}'))
    document = asked.object
    assert document is not None
    document["a"].append(0.1)
    document["b"] = 2.50
    assert operations(change(asked)) == [{"op": "add", "path": "/a/2", "value": 0.1}, {"op": "replace", "path": "/b", "value": 2.5}]


def test_lone_surrogates_are_written_as_they_came() -> None:
    asked = request(create(b'{"a": "\\ud800"}'))
    assert asked.object is not None
    asked.object["b"] = asked.object["a"] + "\u00fc"
    assert change(asked).patch == b'[{"op":"add","path":"/b","value":"\\ud800\\u00fc"}]'


def test_a_patch_is_bounded() -> None:
    before = {"a-long-name": {"another-long-name": [{"n": n} for n in range(20_000)]}}
    after = {"a-long-name": {"another-long-name": [{"n": n, "m": 1} for n in range(20_000)]}}
    for old, new in ((before, after), (after, before), (before, {"a-long-name": {"another-long-name": ["x"]}}), (nested(1), nested(2))):
        asked = request(create(old))
        patch = difference(asked, new).patch
        assert len(patch) <= max(SMALL_PATCH, len(json.dumps(new, separators=(",", ":"))) + 100)
        assert jsonpatch.apply_patch(old, json.loads(patch)) == new


def nested(leaf: int) -> Any:
    document: Any = {"leaf": leaf, "other": 1}
    for _ in range(200):
        document = {"a-long-name-of-a-member": document}
    return document


class Port(pydantic.BaseModel):
    containerPort: int  # noqa: N815
    protocol: str = "TCP"


class Container(pydantic.BaseModel):
    name: str
    image: str | None = None
    ports: list[Port] = []
    memory: str | None = pydantic.Field(None, alias="memoryLimit")


class Spec(pydantic.BaseModel):
    containers: list[Container] = []
    hostNetwork: bool = False  # noqa: N815


class Pod(pydantic.BaseModel):
    metadata: dict[str, Any]
    spec: Spec


POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a", "creationTimestamp": "2024-01-01T00:00:00Z", "later": 12345678901234567890},
    "spec": {"containers": [{"name": "a", "later": {"x": None}, "ports": [{"containerPort": 80}]}, {"name": "b"}], "later": [1]},
}


def test_a_model_of_pydantic_adds_nothing_by_itself() -> None:
    asked = request(create(POD))
    pod = asked.decode(Pod)
    assert change(asked, pod).patch == b""
    pod.spec.containers.insert(0, Container(name="first", memoryLimit="1Gi"))
    pod.spec.containers[1].ports[0].protocol = "UDP"
    added: dict[str, Any] = {"name": "first", "image": None, "ports": [], "memoryLimit": "1Gi"}
    assert operations(change(asked, pod)) == [
        {"op": "add", "path": "/spec/containers/0", "value": added},
        {"op": "add", "path": "/spec/containers/1/ports/0/protocol", "value": "UDP"},
    ]
    copied = asked.decode(Pod).model_copy(update={"spec": Spec(hostNetwork=True)})
    assert operations(change(asked, copied))[-1] == {"op": "add", "path": "/spec/hostNetwork", "value": True}


def test_a_model_of_the_kubernetes_client_adds_nothing_by_itself() -> None:
    asked = request(create(POD))
    pod: Any = asked.decode(V1Pod)
    assert change(asked, pod).patch == b""
    pod.metadata.labels = {"team": "shop"}
    pod.spec.containers[1].image = "b:1"
    pod.spec.containers.append(V1Container(name="c"))
    operation = operations(change(asked, pod))
    assert [(one["op"], one["path"]) for one in operation] == [
        ("add", "/metadata/labels"),
        ("add", "/spec/containers/1/image"),
        ("add", "/spec/containers/2"),
    ]


def test_models_at_fault() -> None:
    asked = request(create({"spec": 1}), remaining=request(create({})).remaining)
    with pytest.raises(HandlerError, match="the object is no Pod"):
        asked.decode(Pod)
    with pytest.raises(TypeError, match="int is no model"):
        asked.decode(int)
    with pytest.raises(ValueError, match=r"not of request.decode\(Port\)"):
        change(asked, Port(containerPort=1))
    with pytest.raises(HandlerError, match="no object to be read as a Pod"):
        request(delete(POD)).decode(Pod)
    assert request(delete(POD)).decode_old(Pod).spec.containers[0].name == "a"


def test_any_difference_applies() -> None:
    chance = random.Random(1)  # noqa: S311
    for _ in range(1000):
        before = {"root": document(chance, 4)}
        after = {"root": document(chance, 4) if chance.random() < 0.3 else edited(chance, copy.deepcopy(before["root"]))}
        made = operations(difference(request(create(before)), after))
        assert equal(jsonpatch.apply_patch(copy.deepcopy(before), made), after)


def test_what_a_model_does_not_know_stays_whatever_is_changed() -> None:
    chance = random.Random(2)  # noqa: S311
    for _ in range(1000):
        raw = {"root": document(chance, 4), "unknown": document(chance, 2)}
        before = modelled(raw)
        after = {**before, "root": edited(chance, copy.deepcopy(before["root"]))}
        encoded = json.dumps(raw).encode()
        made = read(changed(encoded, before, after) or b"[]")
        result = jsonpatch.apply_patch(read(encoded), made)
        assert equal(result, merge(read(encoded), before, after))
        assert equal(result["unknown"], raw["unknown"])
        assert changed(encoded, before, copy.deepcopy(before)) == b""


def modelled(value: Any) -> Any:
    """Is what a model makes of a document: it drops members, and adds nulls and defaults."""
    if isinstance(value, dict):
        return {name: modelled(below) for name, below in value.items() if name not in ("unknown", "~")} | {"null": None, "default": []}
    return list(map(modelled, value)) if isinstance(value, list) else value


def document(chance: random.Random, depth: int) -> Any:
    match chance.randrange(6 if depth else 4):
        case 0:
            return chance.choice([True, False, None, 0, 1, 1.5])
        case 1:
            return chance.choice([0, 1, 2, 2**53 + 1])
        case 2 | 3:
            return chance.choice(["", "a", "a/b", "~", "ü"])
        case 4:
            return [document(chance, depth - 1) for _ in range(chance.randrange(5))]
        case _:
            names = ["a", "b", "c/", "~", "name", "unknown"]
            return {chance.choice(names): document(chance, depth - 1) for _ in range(chance.randrange(5))}


def edited(chance: random.Random, value: Any) -> Any:
    if not isinstance(value, list | dict) or not value or chance.random() < 0.1:
        return document(chance, 2)
    if isinstance(value, list):
        for _ in range(chance.randrange(3)):
            value.insert(chance.randrange(len(value) + 1), document(chance, 2))
        at = chance.randrange(len(value))
        value[at] = edited(chance, value[at])
        if chance.random() < 0.5:
            value.insert(chance.randrange(len(value)), value.pop(chance.randrange(len(value))))
    else:
        name = chance.choice(sorted(value))
        value[name] = edited(chance, value[name])
        if chance.random() < 0.2:
            del value[chance.choice(sorted(value))]
    return value
