"""What handlers answer, and what they are asked."""

import copy
import json
import random
from datetime import timedelta
from typing import Any

import jsonpatch
import pytest

from portcullis_host import Cause, HandlerError, Mode, Response, Stage, deny, json_patch, patch
from portcullis_host._errors import public_text
from portcullis_host._response import to_message
from portcullis_host.testing import create, delete, request, update


def message(response: Response | None, stage: Stage = Stage.MUTATE) -> Any:
    return to_message(response, stage)


def test_a_denial_has_the_defaults_of_the_mesh() -> None:
    status = message(deny("no")).status
    assert (status.status, status.message, status.reason, status.code) == ("Failure", "no", "Forbidden", 403)
    assert message(deny("no", code=422)).status.reason == ""
    assert message(deny("no", code=0)).status.code == 403


def test_a_denial_carries_what_was_said() -> None:
    denial = deny("no", code=422, reason="Invalid", causes=[Cause("spec.x", "bad", "FieldValueInvalid")], warnings=["w"], audit={"k": "v"})
    sent = message(denial)
    [cause] = sent.status.details.causes
    assert (cause.field, cause.message, cause.reason) == ("spec.x", "bad", "FieldValueInvalid")
    assert (sent.status.reason, list(sent.warnings), dict(sent.audit_annotations)) == ("Invalid", ["w"], {"k": "v"})


def test_text_that_is_no_unicode_does_not_end_the_session() -> None:
    sent = message(deny("\ud800", warnings=["\udfff"], audit={"\ud800": "\ud800"}))
    assert (sent.status.message, list(sent.warnings), dict(sent.audit_annotations)) == ("?", ["?"], {"?": "?"})


@pytest.mark.parametrize("wrong", [None, "allow", True])
def test_what_is_no_response_is_a_failure(wrong: Any) -> None:
    with pytest.raises(HandlerError):
        message(wrong)


def test_a_patch_is_a_json_array_of_a_mutating_hook() -> None:
    sent = message(json_patch([{"op": "remove", "path": "/a"}]))
    assert (sent.patch, sent.patch_type) == (b'[{"op":"remove","path":"/a"}]', "JSONPatch")
    assert message(json_patch([])).patch_type == ""
    for wrong in (b"{}", b"[", b"\xff"):
        with pytest.raises(HandlerError, match="is not a JSON Patch"):
            message(json_patch(wrong))
    with pytest.raises(HandlerError, match="validating"):
        message(json_patch([{"op": "remove", "path": "/a"}]), Stage.VALIDATE)
    with pytest.raises(ValueError, match="JSON"):
        json_patch([{"op": "add", "path": "/a", "value": float("nan")}])


def test_a_patch_is_the_difference_to_the_bytes_that_came() -> None:
    asked = request(create('{"a": 1, "big": 12345678901234567890, "f": 1.10, "list": [1, 2]}'))
    document = asked.object
    assert document is not None
    document["a"], document["list"] = True, [2]
    operations = json.loads(patch(asked, document, warnings=["w"]).patch)
    assert {operation["path"].split("/")[1] for operation in operations} == {"a", "list"}
    assert jsonpatch.apply_patch({"a": 1, "list": [1, 2]}, operations) == {"a": True, "list": [2]}


def test_an_object_that_did_not_change_makes_no_patch() -> None:
    asked = request(create({"a": {"b": [1, {"c": None}]}}))
    assert patch(asked, asked.object or {}).patch == b""


def test_a_model_that_drops_fields_keeps_them_in_the_object() -> None:
    asked = request(create({"known": 1, "unknown": 2}))
    operations = json.loads(patch(asked, {"known": 3}, original={"known": 1}).patch)
    assert jsonpatch.apply_patch({"known": 1, "unknown": 2}, operations) == {"known": 3, "unknown": 2}


def test_a_request_without_an_object_cannot_be_patched() -> None:
    with pytest.raises(ValueError, match="without an object"):
        patch(request(delete({})), {})


def test_differences_of_any_documents_apply() -> None:
    chance = random.Random(1)  # noqa: S311
    for _ in range(300):
        before = {"root": document(chance, 4)}
        after = copy.deepcopy(before)
        after["root"] = document(chance, 4) if chance.random() < 0.3 else change(chance, after["root"])
        made = patch(request(create(before)), after).patch
        assert jsonpatch.apply_patch(before, json.loads(made or b"[]")) == after


def document(chance: random.Random, depth: int) -> Any:
    kind = chance.randrange(6 if depth else 4)
    match kind:
        case 0:
            return chance.choice([True, False, None, 0, 1, 1.0])
        case 1:
            return chance.randrange(5)
        case 2 | 3:
            return chance.choice(["", "a", "a/b", "~", "ü"])
        case 4:
            return [document(chance, depth - 1) for _ in range(chance.randrange(5))]
        case _:
            return {chance.choice("abc/~"): document(chance, depth - 1) for _ in range(chance.randrange(5))}


def change(chance: random.Random, value: Any) -> Any:
    kind = value.__class__.__name__
    if not value or kind not in ("list", "dict"):
        return document(chance, 1)
    if kind == "list":
        value.insert(chance.randrange(len(value)), value.pop(chance.randrange(len(value))))
    else:
        key = chance.choice(sorted(value))
        value[key] = change(chance, value[key])
    return value


def test_only_the_text_of_a_handler_error_leaves() -> None:
    secret = RuntimeError("hunter2")
    authored = HandlerError("registry is down")
    assert public_text(secret, "failed") == "failed"
    assert public_text(authored, "failed") == "registry is down"
    assert public_text(HandlerError(""), "failed") == "failed"
    assert public_text(ExceptionGroup("g", [secret, ExceptionGroup("h", [authored])]), "failed") == "registry is down"
    secret.__cause__ = authored
    assert public_text(secret, "failed") == "registry is down"
    authored.__cause__ = secret  # A circle ends.
    secret.__cause__ = secret
    assert public_text(secret, "failed") == "failed"


def test_a_request_says_what_its_message_says() -> None:
    message = update({"kind": "NetworkPolicy", "apiVersion": "n/v1", "metadata": {"name": "a", "namespace": "b"}}, {"x": 1})
    message.dry_run = True
    asked = request(message, stage=Stage.MUTATE, round=1, mode=Mode.SHADOW)
    assert (asked.operation, asked.username, asked.cluster, asked.dry_run) == ("UPDATE", "test", "test", True)
    assert asked.object == {"x": 1}
    assert asked.object is asked.object, "it is decoded once"
    assert (asked.old_object or {})["kind"] == "NetworkPolicy"
    assert asked.object_raw == b'{"x": 1}'
    assert request(create({})).old_object is None
    assert request(delete({})).object is None
    assert request(delete({})).object_raw is None


def test_requests_say_what_objects_say_of_themselves() -> None:
    made = create({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "a", "namespace": "b"}})
    assert (made.kind.group, made.kind.version, made.kind.kind) == ("networking.k8s.io", "v1", "NetworkPolicy")
    assert (made.resource.resource, made.name, made.namespace) == ("networkpolicies", "a", "b")
    assert create('{"apiVersion": "v1", "kind": "Pod"}').resource.resource == "pods"
    assert create(b"nonsense").kind.kind == ""


@pytest.mark.parametrize("raw", [b"[]", b"{", b"\xff"])
def test_an_object_that_is_none_says_so_to_the_operator(raw: bytes) -> None:
    with pytest.raises(HandlerError, match="the object is n"):
        _ = request(create(raw)).object


def test_an_unknown_mode_is_not_said() -> None:
    assert Mode(99) is Mode.UNSPECIFIED


def test_the_time_of_a_request_ends() -> None:
    over = request(create({}), remaining=timedelta())
    assert over.cancelled
    assert over.remaining == timedelta()
    assert over.wait_cancelled(timedelta(days=1))
    lasting = request(create({}), remaining=timedelta(hours=1))
    assert timedelta(minutes=59) < lasting.remaining <= timedelta(hours=1)
    assert not lasting.wait_cancelled(timedelta(milliseconds=1))
