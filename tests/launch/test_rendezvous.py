import psutil

from lockstep.launch.rendezvous import LocalRendezvous


def test_the_store_is_open_to_this_machine_only_on_a_free_port() -> None:
    one, two = LocalRendezvous(), LocalRendezvous()
    meeting = one.next_rendezvous()
    assert (meeting.rank, meeting.world_size) == (0, 1)
    listening = {
        address.laddr.port: address.laddr.ip
        for address in psutil.Process().net_connections("tcp")
        if address.status == psutil.CONN_LISTEN
    }
    ports = {handler.next_rendezvous().bootstrap_store_info.master_port for handler in (one, two)}  # type: ignore[union-attr]
    assert len(ports) == 2
    assert {listening[port] for port in ports} == {"127.0.0.1"}
    meeting.store.set("key", "value")
    assert meeting.store.get("key") == b"value"


def test_nobody_else_comes_or_goes() -> None:
    handler = LocalRendezvous()
    handler.set_closed()
    assert handler.use_agent_store and not handler.is_closed() and handler.num_nodes_waiting() == 0
    assert handler.shutdown()
