"""Ready training tasks, by the name that `recipe:` in a config uses.

A built-in recipe is a row of `BUILTIN`; its default settings are `<name>.yaml` beside this file.
Nothing here imports torch: a launcher can ask for names without paying for it.
"""

from collections.abc import Mapping
from types import MappingProxyType

BUILTIN: Mapping[str, str] = MappingProxyType(
    {
        "digit_scenes": "lockstep.recipes.digit_scenes:DigitScenes",
        "docstrings": "lockstep.recipes.docstrings:Docstrings",
        "folder": "lockstep.recipes.folder:Folder",
        "points": "lockstep.recipes.points:Points",
        "two_branches": "lockstep.recipes.two_branches:TwoBranches",
        "voc": "lockstep.recipes.voc:Voc",
    }
)
"""Name of a built-in recipe -> `module:Class`."""
