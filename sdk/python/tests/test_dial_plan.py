"""Which dispatchers a host dials."""

from portcullis_host._dial_plan import Changes, DialPlan, Endpoint, is_address, join, split
from portcullis_host._limits import MAX_TARGETS, PEER_DELAY
from portcullis_host.contract import host

NAME = "mesh.example:8444"
ONE, TWO = Endpoint("10.0.0.1:8444", "mesh.example"), Endpoint("10.0.0.2:8444", "mesh.example")


def started(changes: Changes) -> list[str]:
    return [target.key for target in changes.start]


def peer(dispatcher: str, *addresses: str) -> host.Peer:
    return host.Peer(dispatcher_id=dispatcher, addresses=addresses)


def resolved() -> DialPlan:
    plan = DialPlan([NAME], "")
    plan.resolved(NAME, ["10.0.0.1", "10.0.0.2"])
    return plan


def test_every_address_is_dialled_by_the_name_that_was_configured() -> None:
    changes = DialPlan([NAME], "").resolved(NAME, ["10.0.0.1", "fd00::1"])
    assert [target.endpoints for target in changes.start] == [(ONE,), (Endpoint("[fd00::1]:8444", "mesh.example"),)]


def test_a_configured_server_name_is_for_all() -> None:
    plan = DialPlan([NAME], "other.example")
    changes = plan.resolved(NAME, ["10.0.0.1"])
    assert changes.start[0].endpoints[0].server_name == "other.example"
    changes = plan.welcomed(ONE.address, ONE, "d1", [peer("d2", "peer.example:1")])
    assert changes.start[0].endpoints[0].server_name == "other.example"


def test_of_two_sessions_to_one_dispatcher_the_younger_stays() -> None:
    plan = resolved()
    assert plan.welcomed(ONE.address, ONE, "d1", []) == Changes()
    assert plan.welcomed(TWO.address, TWO, "d1", []).stop == [ONE.address]
    assert started(plan.gone(ONE.address)) == [], "the dispatcher was last met there, and another loop has it"
    assert started(plan.ended(TWO.address)) == [ONE.address], "nobody has it any more"


def test_a_peer_is_dialled_with_the_name_of_who_named_it() -> None:
    plan = resolved()
    changes = plan.welcomed(ONE.address, ONE, "d1", [peer("d3", "10.0.0.3:8444", "no address", "p.example:9")])
    [target] = changes.start
    assert target.key == "peer d3"
    assert target.delay == PEER_DELAY
    assert target.endpoints == (Endpoint("10.0.0.3:8444", "mesh.example"), Endpoint("p.example:9", "p.example"))


def test_a_peer_whose_address_is_known_is_not_dialled_twice() -> None:
    plan = resolved()
    assert plan.welcomed(ONE.address, ONE, "d1", [peer("d2", TWO.address)]) == Changes()
    plan.welcomed(TWO.address, TWO, "d2", [])
    assert plan.welcomed(ONE.address, ONE, "d1", [peer("d2", "10.9.9.9:1")]) == Changes()


def test_a_peer_that_is_no_longer_named_is_no_longer_dialled() -> None:
    plan = resolved()
    plan.welcomed(ONE.address, ONE, "d1", [peer("d3", "10.0.0.3:8444")])
    assert plan.welcomed(ONE.address, ONE, "d1", []).stop == ["peer d3"]
    plan = resolved()
    plan.welcomed(ONE.address, ONE, "d1", [peer("d3", "10.0.0.3:8444")])
    plan.welcomed("peer d3", Endpoint("10.0.0.3:8444", "mesh.example"), "d3", [])
    assert plan.welcomed(ONE.address, ONE, "d1", []) == Changes(), "it has a session"


def test_peers_of_a_dispatcher_that_leaves_are_dialled_at_once() -> None:
    plan = resolved()
    plan.welcomed(ONE.address, ONE, "d1", [])
    [target] = plan.leaving(ONE.address, ONE, [peer("d3", "10.0.0.3:8444")]).start
    assert target.delay == 0


def test_an_address_that_is_gone_is_not_dialled_and_its_session_lasts() -> None:
    plan = resolved()
    plan.welcomed(ONE.address, ONE, "d1", [])
    assert plan.resolved(NAME, ["10.0.0.3"]).stop == [TWO.address]
    assert plan.ended(ONE.address).stop == [ONE.address]


def test_dispatchers_are_bounded() -> None:
    plan = DialPlan([NAME], "")
    assert len(plan.resolved(NAME, [f"10.0.1.{i}" for i in range(100)]).start) == MAX_TARGETS


def test_addresses() -> None:
    assert split("[::1]:80") == ("::1", "80")
    assert join("::1", "80") == "[::1]:80"
    assert [is_address(text) for text in ("a:1", "[::1]:1", "a", "a:", ":1", "::1:1", "a:b")] == [True, True] + [False] * 5
