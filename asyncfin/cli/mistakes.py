"""What is wrong with a command line, and what to write instead, where cyclopts itself would not say so."""

import re
from collections.abc import Iterable, Mapping
from datetime import date
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_origin

from cyclopts import (
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    Token,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

# What other programs call it, by what it is called here. An option is proposed only where a command has it.
_COMMANDS = {
    "query": ("get", "fetch", "ask", "select", "values", "data", "show", "table"),
    "catalogue": ("list", "series", "metrics", "search", "ls", "find", "describe"),
    "extract": ("download", "export", "dump", "sync", "load"),
    "dataset": ("info", "metadata"),
    "sandbox": ("serve", "server", "start", "mock"),
    "explore": ("ui", "web", "browse", "gui"),
    "usage": ("quota", "stats"),
    "names": ("companies", "entities", "name"),
}
_OPTIONS = {
    "--explain": ("--dry-run", "--plan", "--dryrun", "-n", "--estimate", "--cost"),
    "--dry-run": ("--explain", "--plan", "--dryrun", "-n", "--estimate", "--cost"),
    "--into": ("-o", "--output", "--out", "--folder", "--to-folder", "--dir"),
    "--metric": ("--metrics", "-m", "--item", "--concept", "--field", "--tag"),
    "--exact": ("--year", "--years", "--period", "--periods", "--quarter", "--fy"),
    "--annual": ("--yearly", "--year-only", "--years-only", "--fiscal-years"),
    "--quarterly": ("--quarters", "--quarter-only"),
    "--trailing": ("--months", "--trailing-months"),
    "--ttm": ("--ltm", "--last-twelve-months"),
    "--from": ("--start", "--since", "--after", "--start-date", "--from-date"),
    "--to": ("--end", "--until", "--before", "--end-date", "--to-date"),
    "--last": ("--limit", "--head", "--tail", "--top", "--count", "--max"),
    "--basis": ("--segment", "--segments", "--bases"),
    "--restated": ("--restate", "--latest", "--latest-restated", "--value-version"),
    "--token-file": ("--token", "--api-key", "--key", "--bearer"),
    "--base-url": ("--url", "--host", "--endpoint", "--server", "--api-url"),
    "--unit": ("--scale", "--units", "--in-millions"),
    "--replace": ("--overwrite", "--force"),
    "--label": ("--search", "--find", "--grep"),
    "--ids": ("--file", "--input", "-f", "-i", "--from-file"),
    "--csv": ("--format", "--tsv", "--excel", "--fmt"),
    "--json": ("--jsonl", "--ndjson"),
    "--no-cache": ("--fresh", "--nocache"),
}
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
_NUMBERS = {
    "one": 1,
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "eight": 8,
    "ten": 10,
    "twelve": 12,
}
# How an option is written, where its name does not show it.
_WRITTEN = {
    "--last": "--last N, with --annual or --quarterly",
    "--exact": "--exact FY2024, or --annual --last 5",
    "--token-file": "--token-file FILE, or set ASYNCFIN_TOKEN; a token is never an argument",
    "--base-url": "--base-url URL, or set ASYNCFIN_BASE_URL",
    "--into": "--into FOLDER",
    "--trailing": "--trailing 12",
    "--csv": "--csv or --json",
    "--unit": "--unit millions",
}


def whole(_: Any, tokens: Iterable[Token]) -> int:
    """Return the whole number of an option: cyclopts would take 1.5 for 1."""
    *_, token = tokens
    if not re.fullmatch(r"[+-]?\d+", token.value, re.ASCII):
        raise ValueError(token.value)
    return int(token.value)


def described(error: CycloptsError) -> str:
    """Return what is wrong, and what to write where that can be known."""
    match error:
        case UnknownCommandError(unused_tokens=[word, *_], app=app):
            known = [name for name in app or () if not name.startswith("-")]
            return f"unknown command {word!r}{_instead(word, known, _COMMANDS)}"
        case UnknownOptionError(token=token):
            return _unknown_option(token.keyword or token.value, error)
        case CoercionError(argument=argument, token=token) if argument is not None and token is not None:
            return _wrong_value(argument.name, token.value, error)
        case MissingArgumentError(argument=argument, keyword=None) if argument is not None:
            return f"{argument.name} is missing"
        case MissingArgumentError(keyword=keyword):
            return f"{keyword} requires an argument"
        case UnusedCliTokensError(unused_tokens=[*words]):
            return _unused(words)
    return str(error)


def _unknown_option(option: str, error: UnknownOptionError) -> str:
    name = option.partition("=")[0]
    known = [each for argument in error.argument_collection for each in argument.names]
    said = f"unknown option {name}"
    if name in _ENTITY:
        return f"{said}: entities are written without an option, such as asyncfin query ENTITY_ID"
    if name in _TO_FILE and "--into" not in known:
        return f"{said}: output goes to standard output; write > FILE"
    if name.startswith("--no-") and f"--{name[5:]}" in known:
        return f"{said}: leave --{name[5:]} out"
    return said + _instead(name, known, _OPTIONS)


def _instead(word: str, known: Iterable[str], synonyms: Mapping[str, Iterable[str]]) -> str:
    """Return what is meant by a word, as the end of a sentence; "" if that is not clear."""
    known = list(known)
    meant = [name for name, others in synonyms.items() if word.lower() in others and name in known]
    meant = meant or [each for each in known if each.lower() == word.lower()]
    meant = meant or get_close_matches(word.lower(), known, n=1, cutoff=0.75)
    return f": write {_WRITTEN.get(meant[0], meant[0])}" if meant else ""


def _wrong_value(option: str, value: str, error: CoercionError) -> str:
    kinds = (error.target_type, *getattr(error.target_type, "__args__", ()))
    if int in kinds:
        return f"{option} must be a whole number, such as 5, not {value!r}{_number(option, value)}"
    if date in kinds:
        return f"{option} must be a day, written YYYY-MM-DD, such as 2026-01-31, not {value!r}"
    if bool in kinds:
        last = f" --last {value}" if value.isdigit() and option in ("--annual", "--quarterly") else ""
        return f"{option} has no value: write {option}{last}"
    if float in kinds:
        return f"{option} must be a number, such as 2.5, not {value!r}"
    if words := [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]:
        prefix = f"{option} " if option.startswith("-") else ""
        close = get_close_matches(value.lower(), words, n=1)
        write = f": write {prefix}{close[0]}" if close else ""
        return f"{option} must be one of {', '.join(words)}, not {value!r}{write}"
    return str(error).strip().rstrip(".")


def _number(option: str, value: str) -> str:
    if value.lower() in _NUMBERS:
        return f": write {option} {_NUMBERS[value.lower()]}"
    from asyncfin.model.selection import intended_count  # here, since the list of commands needs no model

    count = intended_count(value, months=option == "--trailing")
    return "" if count is None else f": write {option} {count}"


def _unused(words: list[str]) -> str:
    said = f"more arguments than the command takes: {', '.join(map(repr, words))}"
    if re.search(r"\.\w{2,7}$", words[0]):
        return f"{said}; to write a file, > {words[0]}"
    return said
