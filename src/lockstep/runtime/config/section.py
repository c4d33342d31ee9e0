"""What the sections of the config have in common: strict, frozen fields, and their types."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def yaml_switch(value: Any) -> Any:
    """YAML reads the bare words on and off as booleans; as a switch they keep their names."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return value


def off_word(value: Any) -> Any:
    """YAML reads the bare word off as false."""
    return "off" if value is False else value


Count = Annotated[int, Field(ge=1)]
Text = Annotated[str, Field(min_length=1)]
Beta = Annotated[float, Field(ge=0, lt=1)]
Switch = Annotated[Literal["auto", "on", "off"], BeforeValidator(yaml_switch)]


class Section(BaseModel):
    """A frozen group of fields. Strict: text is never read as a number, nor true as 1; 1 is fine for 1.0.

    Validators are built at first use, which keeps the import fast.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)
