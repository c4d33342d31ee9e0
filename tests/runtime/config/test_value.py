import pytest
from pydantic import ValidationError

from lockstep.runtime.config import BatchConfig, Config


def test_an_impossible_one_cannot_be_built_in_python_either() -> None:
    with pytest.raises(ValidationError, match=r"batch\.global_batch is 8 and batch\.per_rank is 4.*only one of them"):
        Config(batch=BatchConfig(global_batch=8, per_rank=4))
