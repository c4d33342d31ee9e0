import copy
import pickle
import subprocess
import sys
from typing import Any

import pytest
from pydantic import ValidationError

from lockstep.runtime.config import BatchConfig, Config


def test_defaults_are_possible() -> None:
    config = Config()
    assert config.recipe == "digit_scenes"
    assert config.batch.global_batch == 16
    assert config.batch.per_rank is None


def test_frozen() -> None:
    config = Config()
    with pytest.raises(ValidationError, match="frozen"):
        config.seed = 3
    with pytest.raises(ValidationError, match="frozen"):
        config.optim.lr = 3.0


def test_the_number_of_ranks_is_not_in_it() -> None:
    with pytest.raises(ValidationError, match="world_size"):
        Config.model_validate({"world_size": 2})


def test_it_travels_to_other_processes() -> None:
    config = Config(options={"layers": [1, {"width": 2}]}, batch=BatchConfig(per_rank=4))
    assert pickle.loads(pickle.dumps(config)) == config
    assert copy.deepcopy(config) == config


def test_options_are_a_copy() -> None:
    given: dict[str, Any] = {"layers": [1]}
    config = Config(options=given)
    given["layers"].append(2)
    assert config.options == {"layers": [1]}


@pytest.mark.parametrize("value", [object(), {1, 2}, b"x", {"inner": {(1, 2): 3}}, [print]])
def test_options_are_plain_data(value: object) -> None:
    with pytest.raises(ValidationError, match="an option holds"):
        Config(options={"x": value})


@pytest.mark.parametrize("seed", [-1, 2**63, 2**70, True, 1.0, None])
def test_seed_range(seed: Any) -> None:
    with pytest.raises(ValidationError):
        Config(seed=seed)
    assert Config(seed=2**63 - 1).seed == 2**63 - 1


def test_importing_it_is_light() -> None:
    code = (
        "import sys, lockstep.runtime.config; print(*(m for m in ('torch', 'omegaconf', 'numpy') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
