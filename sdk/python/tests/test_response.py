"""What handlers answer, and what they are asked."""

import itertools
import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from http import HTTPStatus
from typing import Any, cast

import pytest

from portcullis_host import Cause, Denied, HandlerError, Kind, Mode, Resource, Response, Stage, allow, annotations, deny, labels, patch
from portcullis_host._caller import conclude
from portcullis_host._decoration import CODES, MAX_ITEMS
from portcullis_host._errors import public_text
from portcullis_host._response import left_out, to_message
from portcullis_host._verdict import fit
from portcullis_host.contract import admission, host
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


class PolicyError(Exception):
    """What the policy of an author raises."""


class Silent:
    """It has no text."""

    def __str__(self) -> str:
        raise RuntimeError("hunter2")


class Mute(dict[Any, Any]):
    """Nothing can be asked of it."""

    def items(self) -> Any:
        raise RuntimeError("hunter2")

    __bool__ = __iter__ = __len__ = __str__ = __getitem__ = get = __contains__ = items  # type: ignore[assignment]


class Wild(Response):
    """It does not make its members what they should be."""

    def __post_init__(self) -> None: ...


def endless() -> Iterator[str]:
    """Has no end. A reader that goes on beyond what a dispatcher takes fails its test, in place of filling the memory."""
    yield from map(str, range(MAX_ITEMS + 1))
    pytest.fail("more items were read than a dispatcher takes")


def broken() -> Iterator[Any]:
    yield "first"
    raise RuntimeError("hunter2")


DENIALS: dict[str, tuple[Callable[[], Response], dict[str, Any], str]] = {
    "an exception for a message": (lambda: untyped(PolicyError("privileged")), {"message": "privileged"}, ""),
    "no message": (lambda: untyped(None), {"message": ""}, ""),
    "a number for a message": (lambda: untyped(7), {"message": "7"}, ""),
    "bytes for a message": (lambda: untyped(b"n\xffo"), {"message": "n\ufffdo"}, ""),
    "a message without a text": (lambda: untyped(Silent()), {"message": ""}, "message"),
    "a text for a code": (lambda: untyped("no", code="422"), {"code": 422, "reason": ""}, ""),
    "a member of an enumeration for a code": (lambda: deny("no", code=HTTPStatus.CONFLICT), {"code": 409}, ""),
    "a whole float for a code": (lambda: untyped("no", code=422.0), {"code": 422}, ""),
    "a part of a code": (lambda: untyped("no", code=422.5), {"code": 403, "reason": "Forbidden"}, "code"),
    "no code": (lambda: untyped("no", code=None), {"code": 403}, ""),
    "a word for a code": (lambda: untyped("no", code="ENOENT"), {"code": 403}, "code"),
    "a code of success": (lambda: deny("no", code=200), {"code": 403, "reason": "Forbidden"}, "code"),
    "a code above all": (lambda: deny("no", code=600), {"code": 403}, "code"),
    "a code beyond 32 bits": (lambda: deny("no", code=2**31), {"code": 403}, "code"),
    "a code beyond 64 bits": (lambda: deny("no", code=10**400), {"code": 403}, "code"),
    "an infinite code": (lambda: untyped("no", code=float("inf")), {"code": 403}, "code"),
    "no reason": (lambda: untyped("no", reason=None), {"reason": "Forbidden"}, ""),
    "a number for a reason": (lambda: untyped("no", reason=7), {"reason": "7"}, ""),
    "numbers in the audit log": (lambda: untyped("no", audit={"n": 3, 4: "v"}), {"audit": {"4": "v", "n": "3"}}, ""),
    "nothing in the audit log": (lambda: untyped("no", audit={"k": "v", "n": None}), {"audit": {"k": "v"}}, "audit"),
    "pairs for an audit log": (lambda: untyped("no", audit=[("k", "v")]), {"audit": {"k": "v"}}, ""),
    "a number for an audit log": (lambda: untyped("no", audit=7), {"audit": {}}, "audit"),
    "an annotation without a text": (lambda: untyped("no", audit={"k": "v", "s": Silent()}), {"audit": {"k": "v"}}, "audit"),
    "one warning": (lambda: untyped("no", warnings="careful"), {"warnings": ["careful"]}, ""),
    "an exception for a warning": (lambda: untyped("no", warnings=[PolicyError("w")]), {"warnings": ["w"]}, ""),
    "an exception for all warnings": (lambda: untyped("no", warnings=PolicyError("w")), {"warnings": ["w"]}, ""),
    "nothing for a warning": (lambda: untyped("no", warnings=[None, "w"]), {"warnings": ["w"]}, "warnings"),
    "no warnings": (lambda: untyped("no", warnings=None), {"warnings": []}, ""),
    "warnings that break off": (lambda: deny("no", warnings=broken()), {"warnings": ["first"]}, "warnings"),
    "one cause": (lambda: untyped("no", causes=Cause("f", "m")), {"causes": [("f", "m", "")]}, ""),
    "tuples for causes": (lambda: untyped("no", causes=[("f", "m"), ("f", "m", "r")]), {"causes": [("f", "m", ""), ("f", "m", "r")]}, ""),
    "a tuple that is too long": (lambda: untyped("no", causes=[tuple("abcd"), Cause("f", "m")]), {"causes": [("f", "m", "")]}, "causes"),
    "a mapping for a cause": (lambda: untyped("no", causes={"field": "f", "message": 7}), {"causes": [("f", "7", "")]}, ""),
    "a cause without a message": (lambda: untyped("no", causes=[Cause("f", None)]), {"causes": [("f", "", "")]}, ""),  # type: ignore[arg-type]
    "a cause without a text": (lambda: untyped("no", causes=[Cause("f", Silent())]), {"causes": [("f", "", "")]}, "causes"),  # type: ignore[arg-type]
    "texts for causes": (lambda: untyped("no", causes=["m", PolicyError("e")]), {"causes": [("", "m", ""), ("", "e", "")]}, ""),
    "a mapping that is no cause": (lambda: untyped("no", causes=[{}, {"a": 1}]), {"causes": []}, "causes"),
    "no cause at all": (lambda: untyped("no", causes=[None, Cause("f", "m")]), {"causes": [("f", "m", "")]}, "causes"),
    "a Response that was made by hand": (lambda: Response(allowed=False, message=Silent()), {"message": ""}, "message"),  # type: ignore[arg-type]
    "nothing for a decision": (lambda: Response(allowed=None, message="no"), {"message": "no"}, ""),  # type: ignore[arg-type]
    "a decision that cannot tell": (lambda: Response(allowed=Mute(), message="no"), {"message": "no"}, "allowed"),  # type: ignore[arg-type]
    "warnings without an end": (lambda: untyped("no", warnings=endless()), {"message": "no"}, "warnings"),
    "annotations without an end": (lambda: untyped("no", audit=((n, n) for n in endless())), {"message": "no"}, "audit"),
    "causes without an end": (lambda: untyped("no", causes=endless()), {"message": "no"}, "causes"),
    "an annotation that is no pair": (lambda: untyped("no", audit=["abc", 1, ("k", "v")]), {"audit": {"k": "v"}}, "audit"),
    "a mapping that fails": (
        lambda: untyped("no", audit=Mute(), causes=Mute(), warnings=Mute()),
        {"message": "no"},
        "causes, warnings, audit",
    ),
    "a class of its own": (lambda: Wild(allowed=False, code=2**31, warnings=[Silent()]), {"code": 403, "warnings": []}, ""),  # type: ignore[list-item]
}


def untyped(message: Any, **more: Any) -> Response:
    """Is deny as it is called without a type checker."""
    return deny(message, **more)


@pytest.mark.parametrize("name", DENIALS)
def test_a_denial_stays_one_whatever_goes_with_it(name: str) -> None:
    make, want, missing = DENIALS[name]
    response = make()
    for stage in Stage:
        sent = message(response, stage)
        status = sent.status
        got = {
            "message": status.message,
            "code": status.code,
            "reason": status.reason,
            "causes": [(cause.field, cause.message, cause.reason) for cause in status.details.causes],
            "warnings": list(sent.warnings),
            "audit": dict(sent.audit_annotations),
        }
        assert (sent.allowed, status.status) == (False, "Failure")
        assert {key: got[key] for key in want} == want
        assert admission.AdmissionResponse.FromString(sent.SerializeToString()) == sent
    assert left_out(response) == missing


def test_a_denial_that_was_raised_is_one_at_every_stage() -> None:
    cause = [Cause("f", "m")]
    denied = Denied("no", code=422, reason="Invalid", causes=cause, warnings=["w"], audit={"k": "v"})
    want = message(deny("no", code=422, reason="Invalid", causes=cause, warnings=["w"], audit={"k": "v"}))
    both = ExceptionGroup("both", [HandlerError("registry is down"), denied])
    caused = RuntimeError("hunter2")
    caused.__cause__ = HandlerError("registry is down")
    caused.__cause__.__cause__ = denied
    exiting = SystemExit(1)
    exiting.__cause__ = denied
    for outcome, stage, over in itertools.product((denied, both, caused, exiting), Stage, (False, True)):
        verdict, error, missing = conclude(outcome, stage, over=over)
        assert (verdict.response, error, missing) == (want, None, "")


class Bare(Denied):
    """It does not say what it is."""

    def __init__(self) -> None: ...

    def __str__(self) -> str:
        return "bare"


def test_a_denial_of_ones_own_is_one() -> None:
    assert conclude(Bare(), Stage.VALIDATE, over=True)[0].response.status.message == "bare"
    assert conclude(Denied(), Stage.VALIDATE, over=True)[0].response.status.code == 403
    odd = Denied("no", code=200)
    assert conclude(odd, Stage.VALIDATE, over=False)[2] == "code"
    odd.response = allow()
    assert not conclude(odd, Stage.VALIDATE, over=False)[0].response.allowed


def test_a_denial_has_no_more_items_than_a_dispatcher_takes() -> None:
    denial = deny("no", causes=["c"] * 5, warnings=["w"] * MAX_ITEMS, audit={"k": "v"})  # type: ignore[list-item]
    assert (len(denial.causes), len(denial.warnings), len(denial.audit)) == (5, MAX_ITEMS - 5, 0)
    assert left_out(denial) == "warnings, audit"
    assert left_out(deny("no", warnings=["w"] * MAX_ITEMS)) == ""


def test_of_annotations_with_equal_keys_the_same_one_wins_each_time() -> None:
    for audit in ({1: "a", "1": "b"}, {"1": "b", 1: "a"}):
        assert deny("no", audit=cast("Any", audit)).audit == {"1": "b"}


def test_any_denial_that_can_be_made_is_sent() -> None:
    chance = random.Random(1)  # noqa: S311
    for _ in range(500):
        given = {name: anything(chance, 3) for name in ("code", "reason", "causes", "warnings", "audit") if chance.random() < 0.5}
        text = anything(chance, 1)
        for outcome in (untyped(text, **given), Denied(text, **given), Response(allowed=False, message=text, **given)):
            verdict, error, _ = conclude(outcome, chance.choice(list(Stage)), over=chance.random() < 0.5)
            assert error is None
            assert not verdict.response.allowed
            assert verdict.response.status.code in CODES
            assert host.Verdict.FromString(fit(verdict, 4 << 20).SerializeToString()).response.status.status == "Failure"


def anything(chance: random.Random, depth: int) -> Any:  # noqa: PLR0911 (a return for each kind)
    """Is any value at all."""
    kind = chance.randrange(8 if depth else 5)
    several = [anything(chance, depth - 1) for _ in range(chance.randrange(4))] if kind > 4 else []
    match kind:
        case 0:
            return chance.choice([None, True, False, float("nan"), float("inf"), 1.5, 1j, object(), ..., int])
        case 1:
            return chance.choice([0, -1, 200, 403, 422, 599, 600, 1 << 31, 1 << 63, 10**5000])
        case 2:
            return chance.choice(["", "no", "\ud800", "\x00", "ü" * 1000, b"\xff", "w" * (1 << 20)])
        case 3:
            return chance.choice([PolicyError("e"), ExceptionGroup("g", [ValueError()]), Silent(), Mute()])
        case 4:
            return chance.choice([Cause("f", "m"), Cause(1, None), HTTPStatus.GONE, range(3)])  # type: ignore[arg-type]
        case 5:
            return several
        case 6:
            return iter(several)
        case _:
            return dict(zip(["field", "message", "k", 4], several, strict=False))


def test_a_permission_is_decorated_as_a_denial_is() -> None:
    sent = message(allow(warnings=[PolicyError("w"), None], audit={"n": 3}))  # type: ignore[list-item, dict-item]
    assert (sent.allowed, list(sent.warnings), dict(sent.audit_annotations)) == (True, ["w"], {"n": "3"})


def test_a_denial_does_not_change_with_what_it_was_made_of() -> None:
    warnings, audit, causes = ["w"], {"k": "v"}, [Cause("f", "m")]
    denial = deny("no", warnings=warnings, audit=audit, causes=causes)
    for container in (warnings, audit, causes):
        container.clear()
    assert (denial.warnings, denial.audit, denial.causes) == (("w",), {"k": "v"}, (Cause("f", "m"),))


@pytest.mark.parametrize("wrong", [None, "allow", True])
def test_what_is_no_response_is_a_failure(wrong: Any) -> None:
    with pytest.raises(HandlerError):
        message(wrong)


def test_a_patch_is_a_json_array_of_a_mutating_hook() -> None:
    sent = message(patch([{"op": "remove", "path": "/a"}]))
    assert (sent.patch, sent.patch_type) == (b'[{"op":"remove","path":"/a"}]', "JSONPatch")
    assert message(patch([])).patch_type == ""
    for wrong in (b"{}", b"[", b"\xff"):
        with pytest.raises(HandlerError, match="is not a JSON Patch"):
            message(patch(wrong))
    with pytest.raises(HandlerError, match="validating"):
        message(patch([{"op": "remove", "path": "/a"}]), Stage.VALIDATE)
    with pytest.raises(ValueError, match="JSON"):
        patch([{"op": "add", "path": "/a", "value": float("nan")}])


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
    asked = request(message, stage=Stage.MUTATE, hook="h", configuration="c", round=1, mode=Mode.SHADOW)
    assert (asked.stage, asked.hook, asked.configuration, asked.round, asked.mode) == (Stage.MUTATE, "h", "c", 1, Mode.SHADOW)
    assert (asked.operation, asked.username, asked.cluster, asked.dry_run) == ("UPDATE", "test", "test", True)
    message.kind.CopyFrom(admission.GroupVersionKind(group="n", version="v1", kind="NetworkPolicy"))
    message.resource.CopyFrom(admission.GroupVersionResource(group="n", version="v1", resource="networkpolicies"))
    assert (asked.kind, asked.resource) == (Kind("n", "v1", "NetworkPolicy"), Resource("n", "v1", "networkpolicies"))
    message.user_info.extra["scopes"].items.extend(["a", "b"])
    message.user_info.uid, message.sub_resource, message.options.raw = "u", "status", b'{"dryRun": ["All"]}'
    assert (asked.groups, asked.user_uid, asked.extra) == (("system:authenticated",), "u", {"scopes": ("a", "b")})
    assert (asked.subresource, asked.options, request(create({})).options) == ("status", {"dryRun": ["All"]}, None)
    assert asked.object == {"x": 1}
    assert asked.object is asked.object, "it is decoded once"
    assert (asked.old_object or {})["kind"] == "NetworkPolicy"
    assert asked.raw_object == b'{"x": 1}'
    assert request(create({})).old_object is None
    assert request(delete({})).object is None
    assert request(delete({})).raw_object is None


def test_labels_are_made_when_they_are_set() -> None:
    pod: dict[str, Any] = {"metadata": {"labels": None}}
    assert (labels(pod).get("team"), dict(labels({})), dict(annotations({"metadata": None})), pod["metadata"]["labels"]) == (
        None,
        {},
        {},
        None,
    )
    labels(pod)["team"] = "shop"
    labels(pod)["app"] = "web"
    annotations(pod).setdefault("note", "n")
    assert pod == {"metadata": {"labels": {"team": "shop", "app": "web"}, "annotations": {"note": "n"}}}
    del labels(pod)["team"], labels(pod)["app"]
    assert (len(labels(pod)), list(annotations(pod))) == (0, ["note"])
    bare: dict[str, Any] = {}
    labels(bare)["a"] = "b"
    assert bare == {"metadata": {"labels": {"a": "b"}}}


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
