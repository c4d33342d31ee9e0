"""The config as one frozen value; an impossible one cannot be built."""

from pydantic import model_validator

from lockstep.runtime.config.conflicts import conflicts
from lockstep.runtime.config.schema import Fields


class Config(Fields):
    """The config of a run. It is frozen, and no impossible combination of fields can be built."""

    @model_validator(mode="after")
    def _possible(self) -> "Config":
        found = conflicts(self)
        if found:
            raise ValueError("; ".join(f"{problem.seen}, but must hold: {problem.must}" for problem in found))
        return self
