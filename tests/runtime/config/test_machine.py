"""The sections that say how a run computes."""

from typing import Any

import pytest
from pydantic import ValidationError

from lockstep.runtime.config import MemoryConfig, ParallelConfig, PrecisionConfig, RunConfig


@pytest.mark.parametrize(
    ("section", "values"),
    [
        (RunConfig, {"compile": True}),
        (RunConfig, {"compile": "on"}),
        (ParallelConfig, {"strategy": "fsdp2"}),
        (ParallelConfig, {"blocks": "layers"}),
        (ParallelConfig, {"blocks": [""]}),
        (ParallelConfig, {"cpu_offload": 1}),
        (MemoryConfig, {"activation_checkpointing": "yes"}),
        (PrecisionConfig, {"name": "fp8"}),
        (PrecisionConfig, {"fp32_modules": "norm"}),
    ],
)
def test_what_is_refused(section: Any, values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        section(**values)


def test_short_and_bare_words() -> None:
    assert RunConfig(compile=False).compile == "off"  # type: ignore[arg-type]
    assert ParallelConfig(blocks=["layers.*"]).blocks == ["layers.*"]
    assert PrecisionConfig.model_validate("bf16").name == "bf16"
