"""What is wrong with a command line, and what to write instead, where cyclopts itself
would not say so.
"""

import re
from collections.abc import Callable, Iterable
from datetime import date
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias, get_args, get_origin

from cyclopts import (
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    Token,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from asyncfin.words import either

CommandsWith: TypeAlias = Callable[[str], list[str]]

# Below this share of common letters two options only look alike: --start and
# --restated.
_ALIKE = 0.8
_TO_FILE = ("-o", "--output", "--out", "--file", "--save")
_ENTITY = (
    "--entity",
    "--entities",
    "--entity-id",
    "--company",
    "--companies",
    "--ticker",
    "--symbol",
    "--id",
    "--ids",
)
# Words for what is elsewhere, by what is written instead.
_ELSEWHERE = {
    "known-by": "asyncfin as-of FOLDER WHEN",
    "--token": "--token-file",
    "--start": "--from",
    "--end": "--to",
    "--format": "--json or --csv",
    "--force": "--replace",
    "--overwrite": "--replace",
    "--dir": "--into",
    "--folder": "--into",
    "compare": "asyncfin query ENTITY_ID ENTITY_ID",
    "plan": "asyncfin query ENTITY_ID --explain",
    "plot": "asyncfin query ENTITY_ID --plot FILE.png",
    "serve": "asyncfin explore",
    "--xlsx": "--csv > FILE.csv",
    "--excel": "--csv > FILE.csv",
    "--growth": "asyncfin explore, or a program as in docs/analyses.md",
}


def whole(_: Any, tokens: Iterable[Token]) -> int:
    """Return the whole number of an option: cyclopts would take 1.5 for 1."""
    *_, token = tokens
    if not re.fullmatch(r"[+-]?\d+", token.value, re.ASCII):
        raise ValueError(token.value)
    return int(token.value)


def described(error: CycloptsError, commands_with: CommandsWith) -> str:
    """Return what is wrong, and what to write where that can be known.

    `commands_with` returns the commands that have an option.
    """
    match error:
        case UnknownCommandError(unused_tokens=[word, *_], app=app):
            known = [name for name in app or () if not name.startswith("-")]
            return f"unknown command {word!r}{_instead(word, known)}"
        case UnknownOptionError(token=token):
            return _unknown_option(token.keyword or token.value, error, commands_with)
        case CoercionError(argument=argument, token=token) if (
            argument is not None and token is not None
        ):
            return _wrong_value(argument.name, token.value, error)
        case MissingArgumentError(argument=argument, keyword=None) if (
            argument is not None
        ):
            return f"{argument.name} is missing"
        case MissingArgumentError(keyword=keyword):
            return f"{keyword} requires an argument"
        case UnusedCliTokensError(unused_tokens=[*words]):
            return _unused(words)
    return str(error)


def _unknown_option(
    option: str, error: UnknownOptionError, commands_with: CommandsWith
) -> str:
    name = option.partition("=")[0]
    known = [each for argument in error.argument_collection for each in argument.names]
    said = f"unknown option {name}"
    if name in _ENTITY:
        return (
            f"{said}: entities are written without an option, such as asyncfin query "
            "ENTITY_ID"
        )
    if name in _TO_FILE:
        where = (
            "write --into FOLDER"
            if "--into" in known
            else "output goes to standard output; write > FILE"
        )
        return f"{said}: {where}"
    if name.startswith("--no-") and f"--{name[5:]}" in known:
        return f"{said}: leave --{name[5:]} out"
    if name not in _ELSEWHERE and (others := commands_with(name)):
        return f"{name} is an option of {either(others)}"
    return said + _instead(name, known)


def _instead(word: str, known: Iterable[str]) -> str:
    """Return what is meant by a word, as the end of a sentence; "" if that is not
    clear.
    """
    known = list(known)
    meant = (
        [_ELSEWHERE[word]]
        if word in _ELSEWHERE
        else [each for each in known if each.lower() == word.lower()]
    )
    meant = meant or get_close_matches(word.lower(), known, n=1, cutoff=_ALIKE)
    return f": write {meant[0]}" if meant else ""


def _wrong_value(option: str, value: str, error: CoercionError) -> str:
    kinds = (error.target_type, *getattr(error.target_type, "__args__", ()))
    if int in kinds:
        return (
            f"{option} must be a whole number, such as 5, not "
            f"{value!r}{_number(option, value)}"
        )
    if date in kinds:
        return (
            f"{option} must be a day, written YYYY-MM-DD, such as 2026-01-31, not "
            f"{value!r}"
        )
    if bool in kinds:
        return f"{option} has no value: write {option}{_last(option, value)}"
    if float in kinds:
        return f"{option} must be a number, such as 2.5, not {value!r}"
    if words := [
        word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)
    ]:
        prefix = f"{option} " if option.startswith("-") else ""
        close = get_close_matches(value.lower(), words, n=1)
        write = f": write {prefix}{close[0]}" if close else ""
        return f"{option} must be one of {', '.join(words)}, not {value!r}{write}"
    return str(error).strip().rstrip(".")


# The model is imported where a mistake concerns periods: neither help nor the list of
# commands needs it.


def _last(option: str, value: str) -> str:
    """Return what is added to a rule of periods that was given a number: a blank and
    ``--last 5``.
    """
    from asyncfin.typing import RULES

    is_rule = option.removeprefix("--") in RULES
    return f" --last {value}" if value.isdigit() and is_rule else ""


def _number(option: str, value: str) -> str:
    from asyncfin import Annual, SelectionError, Trailing
    from asyncfin.typing import Rule

    try:
        Trailing(value) if option == "--trailing" else Annual(last=value)  # type: ignore[arg-type]
    except SelectionError as error:
        match error.instead:
            case Trailing(months=count) | Rule(last=count):
                advice = error.problem.partition("; ")[2]
                return f"{advice and '; '}{advice}: write {option} {count}"
    return ""


def _unused(words: list[str]) -> str:
    said = f"more arguments than the command takes: {', '.join(map(repr, words))}"
    if re.search(r"\.\w{2,7}$", words[0]):
        return f"{said}; to write a file, > {words[0]}"
    return said
