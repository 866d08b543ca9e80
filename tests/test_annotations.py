"""Whatever a public signature names can be imported from a documented module."""

import ast
import builtins
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from pathlib import Path

import asyncfin
import asyncfin.errors
import asyncfin.events
import asyncfin.sandbox
import asyncfin.typing
import asyncfin.web

MODULES = (
    asyncfin,
    asyncfin.typing,
    asyncfin.events,
    asyncfin.errors,
    asyncfin.web,
    asyncfin.sandbox,
)


def public_names(module: types.ModuleType) -> set[str]:
    """Return the names that a module offers."""
    own = (
        name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
    )
    return {name for name in getattr(module, "__all__", own) if not name.startswith("_")}


# The seam between the client and its cache: public for these two, not for users.
SEAM = {"partition"}
PUBLIC = {name: getattr(module, name) for module in MODULES for name in public_names(module)}


@cache
def imported(module: str) -> dict[str, str]:
    """Return the names that a module imports, those for type checkers too, and from where."""
    tree = ast.parse(Path(inspect.getfile(sys.modules[module])).read_text())
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: node.module or "" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {(alias.asname or alias.name).split(".")[0]: alias.name for alias in node.names}
    return found


def names(annotation: object, modules: list[str]) -> Iterator[str]:
    """Yield the names of asyncfin in an annotation, which may be a text of one of the modules."""
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        for node in ast.walk(ast.parse(annotation, mode="eval")):
            if isinstance(node, ast.Name) and not hasattr(builtins, node.id):
                origins = [imported(module).get(node.id, module) for module in modules]
                variable = any(isinstance(_of(module, node.id), typing.TypeVar) for module in modules)
                if not variable and all(origin.startswith("asyncfin") for origin in origins):
                    yield node.id
    elif typing.get_origin(annotation) is not typing.Literal:
        for each in typing.get_args(annotation) or (annotation if isinstance(annotation, list) else ()):
            yield from names(each, modules)
        kind = typing.get_origin(annotation) or annotation
        if isinstance(kind, type) and kind.__module__.startswith("asyncfin"):
            yield kind.__name__


def _of(module: str, name: str) -> object:
    return getattr(sys.modules[module], name, None)


def functions(public: object) -> Iterator[Callable[..., object]]:
    """Yield a public function, or the public methods, properties and the constructor of a class."""
    if inspect.isfunction(public):
        yield public
    if not isinstance(public, type):
        return
    about = public.__doc__ or ""
    # Results and errors are made by the library: the reference shows no constructor of them.
    is_made = issubclass(public, BaseException) or "Args:" not in about
    for name in dir(public):
        member = inspect.getattr_static(public, name)
        if name.startswith("_") and (name != "__init__" or is_made):
            continue
        match member:
            case classmethod() | staticmethod():
                yield member.__func__
            case property() if member.fget is not None:
                yield member.fget
            case cached_property():
                yield member.func
            case types.FunctionType():
                yield member


def test_signatures_name_what_can_be_imported() -> None:
    """Each name in a public annotation is public under the same name, or of another library."""
    faults = {
        f"{function.__qualname__} names {annotated}"
        for name, public in PUBLIC.items()
        for function, modules in public_functions(public)
        for annotation in function.__annotations__.values()
        for annotated in names(annotation, modules)
        if annotated not in PUBLIC and annotated != name and function.__name__ not in SEAM
    }
    assert not faults


def public_functions(public: object) -> Iterator[tuple[Callable[..., object], list[str]]]:
    """Yield functions of a public object, and the modules where their annotations may be defined."""
    classes = public.__mro__[:-1] if isinstance(public, type) else [public]
    modules = [getattr(line, "__module__", "") for line in classes]
    modules = [module for module in modules if module.startswith("asyncfin")]
    for function in functions(public):
        if function.__module__.startswith("asyncfin") or function.__name__ == "__init__":
            yield function, [function.__module__] if function.__module__ in modules else modules
