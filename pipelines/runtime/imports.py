"""Imports of large packages: late, for a fast --help, or without packages that a run does not use.

Beam imports cloud clients, pyarrow imports pandas, numba imports scipy: 0.6 s of CPU and 90 MB in
each run. All three work without these packages.
"""

import importlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

# Packages that Beam imports, does without, and no run on one machine uses.
NOT_LOCAL = ("absl", "apache_beam.io.gcp.bigquery", "apache_beam.io.gcp.gcsio", "apitools", "boto3")
NOT_LOCAL += ("bson", "dill", "google.api_core", "google.auth", "google.cloud", "pandas")
NOT_LOCAL += ("google.cloud.dataflow", "pyarrow.parquet", "pymongo", "requests")
# Modules that Beam cannot do without, and that few runs use: module -> what Beam takes from it and
# only calls or catches. Together 0.09 s.
SELDOM_CALLED: Mapping[str, tuple[str, ...]] = {
    "beartype.door": ("is_subhint",),
    "beartype.roar": ("BeartypeDoorException",),
    "cryptography.fernet": ("Fernet",),
    "fastavro": ("parse_schema", "schemaless_reader", "schemaless_writer"),
    "fastavro.read": ("block_reader",),
    "fastavro.write": ("Writer",),
    "grpc.aio": (),
    "httplib2": (),
}


class _Lazy:
    """A module that is imported when an attribute is first used."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self._name), name)
        setattr(self, name, value)
        return value


# Any, since pyarrow's type stubs lack the compute functions.
pc: Any = _Lazy("pyarrow.compute")
parquet: Any = _Lazy("pyarrow.parquet")
psutil: Any = _Lazy("psutil")


@contextmanager
def block_imports(*packages: str) -> Iterator[None]:
    """Context in which packages, unless imported before, cannot be imported."""
    names = {name for name in packages if name not in sys.modules}

    class Finder:
        """The first finder on sys.meta_path."""

        @staticmethod
        def find_spec(name: str, *_: Any) -> None:
            if name in names:
                raise ModuleNotFoundError(f"{name} is hidden", name=name)

    sys.meta_path.insert(0, Finder)
    try:
        yield
    finally:
        sys.meta_path.remove(Finder)


class _Called:
    """A function or class of a module that is imported when this is called."""

    def __init__(self, module: "_Postponed", name: str):
        self.module = module
        self.name = name

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return getattr(self.module.load(), self.name)(*arguments, **named)


class _Postponed(ModuleType):
    """Stands for a module that is imported when something of it is called or read.

    Its importers then get the module itself, and what they took from it: an `except` clause must
    have the class of the exception.
    """

    def __init__(self, name: str, called: Iterable[str], others: "list[_Postponed]"):
        super().__init__(name)
        self._others = others
        for each in called:
            setattr(self, each, _Called(self, each))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":  # which the import system looks for
            raise AttributeError(name)
        return getattr(self.load(), name)

    def load(self) -> ModuleType:
        """Imports the module, and those of its package that wait, too."""
        package = self.__name__.partition(".")[0]
        own = [each for each in self._others if each.__name__.partition(".")[0] == package]
        for each in own:
            each.leave()
        loaded = {each: importlib.import_module(each.__name__) for each in own}
        for importer in [*sys.modules.values()]:
            # Types tell: asking an object for its class may load a module, or warn.
            if not issubclass(type(importer), ModuleType):
                continue
            for name, value in [*object.__getattribute__(importer, "__dict__").items()]:
                if type(value) is _Postponed and value in loaded:
                    setattr(importer, name, loaded[value])
                elif type(value) is _Called and value.module in loaded:
                    setattr(importer, name, getattr(loaded[value.module], value.name))
        return loaded[self]

    def leave(self) -> None:
        """Lets the next import find the module itself."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]


@contextmanager
def postpone_imports(modules: Mapping[str, tuple[str, ...]]) -> Iterator[None]:
    """Context in which modules, unless imported before, are not imported until they are used.

    Args:
      modules: name to the functions, classes and exceptions that importers take from it and only
        call or catch. Taking anything else imports the module.
    """
    packages = {name.partition(".")[0] for name in sys.modules}
    postponed: list[_Postponed] = []
    for name, called in modules.items():
        if name.partition(".")[0] not in packages:
            postponed.append(_Postponed(name, called, postponed))
    sys.modules.update({each.__name__: each for each in postponed})
    try:
        yield
    finally:
        for each in postponed:
            each.leave()


def block_pandas() -> None:
    """Keeps pyarrow from importing pandas at the first `Array.to_numpy`.

    pyarrow still imports pandas for data frames.
    """
    # Imported here, because users of `block_imports` may not need pyarrow.
    import pyarrow

    with block_imports("pandas"):
        pyarrow.array([0]).to_numpy()
