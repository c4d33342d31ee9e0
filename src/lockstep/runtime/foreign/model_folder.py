"""Folders with a model in one file, or in shards that an index names: those of Accelerate and of Hugging Face."""

import json
from pathlib import Path

from lockstep.runtime.foreign import files
from lockstep.runtime.foreign.contents import Contents, Entry
from lockstep.runtime.foreign.window import DamagedFileError

KIND = "folder of a model"
INDEXES = ("*.safetensors.index.json", "*.bin.index.json", "*.pt.index.json")
_SINGLE = ("model.safetensors", "pytorch_model.bin", "diffusion_pytorch_model.safetensors", "model.pt")
_ACCELERATE = ("random_states_*.pkl", "optimizer*.bin", "scheduler*.bin", "custom_checkpoint_*.pkl")
_REST = (
    *("optimizer*.bin", "optimizer.pt", "scheduler*.bin", "scheduler.pt", "scaler.pt", "sampler*.bin"),
    *("random_states_*.pkl", "rng_state*.pth", "custom_checkpoint_*.pkl"),
)


def matches(path: Path) -> bool:
    """Whether an index or a model's file of a usual name lies in it."""
    return path.is_dir() and bool(index_of(path) or models_in(path))


def read(path: Path) -> Contents:
    """All shards of the model, and the state of the training beside it.

    Raises:
        DamagedFileError: where a shard, or a tensor that the index names, is missing.
    """
    index = index_of(path)
    models = models_in(path)
    contents = Contents(path, kind_of(path), {}, "model")
    if index is not None:
        contents.merged({"model": _sharded(path, index, contents)})
    for position, model in enumerate([] if index is not None else models):
        found = files.read(model)
        weights = found.groups.get(found.weights or "", {})
        contents.merged({"model" if position == 0 else model.stem: weights}, found)
    for file in rest_in(path):
        found = files.read(file)
        state = {f"{file.stem}{'.' * bool(name)}{name}": group for name, group in found.groups.items()}
        contents.merged(state)
        contents.origins = list(dict.fromkeys([*contents.origins, *found.origins]))
        contents.facts |= {file.name: _told(found)}
    return contents


def kind_of(path: Path) -> str:
    """Who writes such folders."""
    if any(any(path.glob(pattern)) for pattern in _ACCELERATE):
        return "folder of Accelerate's save_state"
    return "folder of Hugging Face's save_pretrained" if (path / "config.json").is_file() else KIND


def index_of(path: Path) -> Path | None:
    """The index of a folder whose model lies in shards; safetensors first."""
    found = [file for pattern in INDEXES for file in sorted(path.glob(pattern))]
    return found[0] if found else None


def models_in(path: Path) -> list[Path]:
    """The files of whole models, the first model first (Accelerate numbers the others)."""
    first = [path / name for name in _SINGLE if (path / name).is_file()][:1]
    more = [*path.glob("model_[0-9]*.safetensors"), *path.glob("pytorch_model_[0-9]*.bin")]
    return first + sorted(file for file in more if "-of-" not in file.name)


def rest_in(path: Path) -> list[Path]:
    """The files of the training's state."""
    return sorted({file for pattern in _REST for file in path.glob(pattern) if file.is_file()})


def weight_map(index: Path) -> dict[str, str]:
    """Which shard holds which tensor.

    Raises:
        DamagedFileError: where the index is none, or names files elsewhere.
    """
    try:
        named = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        shards = {str(name): str(file) for name, file in named.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedFileError(f"{index} cannot be read: {error!r}") from None
    for file in shards.values():
        if Path(file).name != file or file in ("", ".."):
            raise DamagedFileError(f"{index} names a file of another folder: {file}")
    return shards


def _sharded(path: Path, index: Path, contents: Contents) -> dict[str, Entry]:
    named = weight_map(index)
    missing = sorted({file for file in named.values() if not (path / file).is_file()})
    if missing:
        raise DamagedFileError(f"{index.name} names {', '.join(missing[:5])}, which {_is_are(missing)} not there")
    tensors: dict[str, Entry] = {}
    for file in sorted(set(named.values())):
        shard = files.read(path / file)
        contents.merged({}, shard)
        tensors |= shard.groups.get(shard.weights or "", {})
    lost = [name for name in named if name not in tensors]
    if lost:
        raise DamagedFileError(f"{index.name} names {lost[0]}, which is not in {named[lost[0]]}")
    contents.facts["shards"] = len(set(named.values()))
    return tensors


def _is_are(names: list[str]) -> str:
    return "are" if len(names) > 1 else "is"


def _told(found: Contents) -> str:
    facts = [str(value) if key == "optimizer" else f"{key} {value}" for key, value in found.facts.items()]
    return "; ".join(facts[:4]) or found.kind
