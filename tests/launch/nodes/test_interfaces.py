import pytest

from lockstep.core.errors import UserError
from lockstep.launch.nodes import interfaces
from lockstep.launch.nodes.interfaces import GLOO, NCCL, check_named, interface_of, is_loopback, variables, way_to

THERE = {"eth0": ["10.0.0.5", "fe80::1"], "eth0.7": ["10.7.0.5"], "ib0": ["10.1.0.5"], "lo": ["127.0.0.1", "::1"]}


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interfaces, "addresses", lambda: THERE)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", True),
        ("127.0.1.1", True),
        ("::1", True),
        ("10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("a", False),
    ],
)
def test_loopback(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected


def test_the_interface_of_an_address(there: None) -> None:
    assert [interface_of(one) for one in ("10.0.0.5", "fe80::1%eth0", "127.0.1.1", "::1", "10.9.9.9")] == [
        "eth0",
        "eth0",
        "lo",
        "lo",
        "",
    ]


def test_the_way_to_an_address() -> None:
    assert way_to("127.0.0.1") == ("lo", "127.0.0.1")
    assert way_to("no address") == ("", "")


def test_nccl_is_given_the_whole_name() -> None:
    assert variables("eth0") == {GLOO: "eth0", NCCL: "=eth0"}
    assert variables("") == {}


@pytest.mark.parametrize(
    "named",
    [
        {},
        {GLOO: "eth0"},
        {GLOO: "eth0,ib0"},
        {NCCL: "eth"},
        {NCCL: "=ib0"},
        {NCCL: "^lo"},
        {NCCL: "^=lo,eth0"},
        {NCCL: "ib,eth"},
        {GLOO: "lo,eth0"},
    ],
)
def test_right_names_pass(there: None, named: dict[str, str]) -> None:
    check_named(named, 1, "10.0.0.5")


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ({GLOO: "eth1"}, "eth0 10.0.0.5, eth0.7 10.7.0.5, ib0 10.1.0.5, lo 127.0.0.1"),
        ({GLOO: "^lo"}, "NCCL's syntax"),
        ({GLOO: "=eth0"}, "NCCL's syntax"),
        ({GLOO: "eth0, ib0"}, "an interface of this machine"),
        ({NCCL: "ens"}, "must leave an interface"),
        ({NCCL: "=eth"}, "must leave an interface"),
        ({NCCL: "^eth,ib,lo"}, "must leave an interface"),
        ({GLOO: "lo"}, "not the loopback interface"),
        ({NCCL: "^eth,ib"}, "not the loopback interface"),
    ],
)
def test_wrong_names_are_refused(there: None, named: dict[str, str], words: str) -> None:
    with pytest.raises(UserError, match="is '") as raised:
        check_named(named, 1, "10.0.0.5")
    assert words in str(raised.value) and "node 1" in str(raised.value)


def test_loopback_is_right_on_one_machine(there: None) -> None:
    check_named({GLOO: "lo", NCCL: "lo"}, 1, "127.0.0.1")
