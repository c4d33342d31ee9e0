"""What one node knows of all: written by the thread that talks to the others, read by everybody in this process."""

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from lockstep.core.errors import LockstepError, RunError, UserError, explain
from lockstep.launch.nodes import Nodes
from lockstep.launch.nodes.wire import Message

_SHOWN = 6
GONE_S = 2.0
"""A closed connection that is not opened again for so long means that the launcher at its other end has died."""


@dataclass(frozen=True)
class Card:
    """Who a node is. Facts must be equal on all nodes.

    token: a new one for each launcher. name: of the machine. ranks: how many run there. address, interface: its own,
    towards node 0. reached: the address by which it reached node 0; "" for node 0 itself, which need not know.
    """

    node: int
    num_nodes: int
    ranks: int
    facts: Mapping[str, str]
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    name: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    address: str = ""
    interface: str = ""
    reached: str = ""

    @classmethod
    def mine(cls, nodes: Nodes, ranks: int, facts: Mapping[str, str]) -> "Card":
        """The card of this launcher."""
        return cls(nodes.node, nodes.num_nodes, ranks, dict(facts))

    def to_message(self) -> Message:
        """As sent."""
        return asdict(self)

    @classmethod
    def from_message(cls, message: Message) -> "Card":
        """As received; fields of a later version are passed over."""
        return cls(**{name: message[name] for name in cls.__dataclass_fields__})

    def __str__(self) -> str:
        place = f"{self.name}, {self.address}" if self.address else self.name
        return f"node {self.node} ({place}, pid {self.pid})"


@dataclass
class Words:
    """What a node says, the latest of each.

    want: the attempt that it is ready to start. joined: that whose store it has reached. reports: by attempt.
    """

    tell: str = ""
    want: int = -1
    joined: int = -1
    reports: dict[int, str] = field(default_factory=dict)
    left: bool = False

    def to_message(self) -> Message:
        """As sent: everything each time, so that nothing is lost with a connection."""
        reports = {str(attempt): text for attempt, text in sorted(self.reports.items())[-2:]}
        states = {"want": self.want, "joined": self.joined, "left": self.left}
        return {"tell": self.tell, "reports": reports, **states}

    @classmethod
    def from_message(cls, message: Message) -> "Words":
        """As received."""
        reports = {int(attempt): text for attempt, text in message["reports"].items()}
        return cls(message["tell"], message["want"], message["joined"], reports, message["left"])

    def urgent(self) -> tuple[Any, ...]:
        """What the others must learn at once."""
        return self.want, self.joined, tuple(self.reports), self.left


@dataclass
class Other:
    """Another node. heard_at: `time.monotonic` here when it was last alive. lost_at: when its connection closed."""

    words: Words
    heard_at: float
    lost_at: float | None = None

    @property
    def gone(self) -> bool:
        """Whether its launcher has died, or left before its time."""
        if self.words.left:
            return not self.ended
        return self.lost_at is not None and time.monotonic() - self.lost_at >= GONE_S

    @property
    def ended(self) -> bool:
        """Whether it has left after its report."""
        return self.words.left and max(self.words.reports, default=-2) >= self.words.want


class Roster:
    """State shared by threads; `changed` guards it and is notified when something new came.

    met: whether all nodes are there and agree. store: attempt and port of the ranks' store. error: why the meeting
    failed, for every node. ahead_s: this machine's clock against node 0's, in seconds.
    """

    def __init__(self, card: Card) -> None:
        self.changed = threading.Condition()
        self.card = card
        self.mine = Words()
        self.others: dict[int, Other] = {}
        self.cards: dict[int, Card] = {}
        self.met = False
        self.store: tuple[int, int] | None = None
        self.error: LockstepError | None = None
        self.ahead_s = 0.0
        self.wake: Callable[[], None] = lambda: None

    def missing(self) -> list[int]:
        """Nodes that have not come."""
        return [node for node in range(self.card.num_nodes) if node not in self.cards]

    def fail(self, error: LockstepError) -> None:
        """The meeting has failed; the first reason counts."""
        with self.changed:
            self.error = self.error or error
            self.changed.notify_all()

    def say(self, **words: Any) -> None:
        """Change this node's words, and send them now unless it is only the progress."""
        with self.changed:
            for name, value in words.items():
                setattr(self.mine, name, value)
            self.changed.notify_all()
        if set(words) != {"tell"}:
            self.wake()

    def hear(self, node: int, words: Words, age_s: float = 0.0) -> None:
        """Note what another node said, and how long ago."""
        with self.changed:
            self.others[node] = Other(words, time.monotonic() - age_s)
            self.changed.notify_all()

    def lose(self, node: int, gone: bool = False) -> None:
        """Note that the connection to a node has closed; gone: that it will not come back."""
        with self.changed:
            other = self.others.setdefault(node, Other(Words(), time.monotonic()))
            if other.lost_at is None or gone:
                other.lost_at = time.monotonic() - (GONE_S if gone else 0.0)
            self.changed.notify_all()


def error_message(error: LockstepError) -> Message:
    """An error as it is sent to the other nodes."""
    return {"text": str(error), "user": isinstance(error, UserError)}


def error_from(message: Message) -> LockstepError:
    """The error that another node has sent."""
    return (UserError if message["user"] else RunError)(message["text"])


def differing(cards: Mapping[int, Card]) -> LockstepError | None:
    """The first node whose facts differ from those of node 0, with every fact that does."""
    first = cards[0]
    for node, card in sorted(cards.items()):
        keys = [key for key in {**first.facts, **card.facts} if first.facts.get(key) != card.facts.get(key)]
        if keys:
            lines = [
                f"{key} is {card.facts.get(key, 'unknown')!r} on node {node}"
                f" and {first.facts.get(key, 'unknown')!r} on node 0"
                for key in keys[:_SHOWN]
            ]
            lines += [f"and {len(keys) - _SHOWN} more"] if len(keys) > _SHOWN else []
            return UserError(
                explain(
                    "; ".join(lines),
                    "these must be equal on all nodes, else the ranks would not train the same model",
                    f"{card} and {first}",
                    "install the same versions, and start the same files with the same arguments on every machine",
                )
            )
    return None
