"""From a name in the configuration to an environment: built in, `gym:NAME`, `module:Class` or `file.py:Class`."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from environments.environment import Environment
from schemas.config import ConfigError

BUILT_IN = {"reverse-text": "environments.reverse_text:ReverseText"}
GYM = "environments.gym:Gym"


def load(name: str, arguments: Mapping[str, Any] | None = None) -> Environment:
    """The environment called `name`, constructed with `arguments` as keywords.

    A module is looked up on the Python path and then in the working directory. Raises ConfigError when there
    is no such environment or it does not take these arguments.
    """
    keywords = dict(arguments or {})
    place = BUILT_IN.get(name, name)
    if name.startswith("gym:"):
        place, keywords["name"] = GYM, name.removeprefix("gym:")
    try:
        kind = _find(place)
        inspect.signature(kind).bind(**keywords)
        return kind(**keywords)
    except (ConfigError, TypeError, ValueError) as error:
        raise ConfigError(f"environment {name!r}: {error}") from error


def _find(place: str) -> type[Environment]:
    where, _, attribute = place.rpartition(":")
    if not where or not attribute:
        raise ConfigError(f"no such name; use {', '.join(BUILT_IN)}, gym:NAME, module:Class or file.py:Class")
    module = _module_of_file(Path(where)) if where.endswith(".py") else _module(where)
    kind = getattr(module, attribute, None)
    if kind is None:
        raise ConfigError(f"{where} has no {attribute}; check the spelling")
    if not (isinstance(kind, type) and issubclass(kind, Environment)):
        raise ConfigError(
            f"{attribute} is not an Environment; derive the class from environments.Environment"
        )
    return kind


def _module(name: str) -> ModuleType:
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last: a file lying here must not replace an installed module
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error}; install it or run where it lies") from error


def _module_of_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise ConfigError(f"there is no file {path}; give its path from the working directory")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses and the like look their module up by name
    spec.loader.exec_module(module)
    return module
