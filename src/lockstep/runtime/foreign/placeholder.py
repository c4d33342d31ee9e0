"""What stands in the place of an object whose class is not ours to run: its name, and what was stored in it."""

from typing import Any, ClassVar


class Foreign:
    """An object of some other program, as plain data.

    Attributes:
        origin: the name of its class or maker, such as `argparse.Namespace`.
        args: what it would have been made with.
        state: what would have been its attributes.
        pairs: what would have been its items, as key and value.
        values: what would have been its elements.
    """

    origin: ClassVar[str] = ""
    args: tuple[Any, ...]
    state: Any
    pairs: list[tuple[Any, Any]]
    values: list[Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> "Foreign":
        """Take anything, do nothing; a pickle makes some objects without calling `__init__`."""
        self = object.__new__(cls)
        self.args, self.state, self.pairs, self.values = (*args, *kwargs.values()), None, [], []
        return self

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __call__(self, *args: Any) -> "Foreign":
        """Whatever it would have made, another placeholder stands for it."""
        return type(self)(*self.args, *args)

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        self.pairs.append((key, value))

    def append(self, value: Any) -> None:
        """Keep an element."""
        self.values.append(value)

    add = append

    def extend(self, values: Any) -> None:
        """Keep elements."""
        self.values.extend(values)

    @property
    def attributes(self) -> dict[Any, Any]:
        """Its attributes, where they were stored as such; of slots too."""
        parts = self.state if isinstance(self.state, tuple) else (self.state,)
        merged: dict[Any, Any] = {}
        for part in parts:
            if isinstance(part, dict):
                merged |= part
        return merged

    def __repr__(self) -> str:
        return f"<{self.origin}>"


def foreign_class(origin: str) -> type[Foreign]:
    """A class whose objects are placeholders for those of `origin`."""
    return type("Foreign", (Foreign,), {"origin": origin})
