"""How variables and functions are named: CONTRIBUTING says why, the tables here how far the rooms are."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import asyncfin

PACKAGE = Path(asyncfin.__file__).parent
TESTS = Path(__file__).parent

# A variable is a noun of its type. These say nothing about it.
_PRONOUNS = """
    each found known given wanted said asked at one several these those rest own left kept made new some both
"""
_OTHERS = """
    other others another more most many few fewer less least every all none same such what which who whose
    here there instead again apart together alike before after above below about of by to into without whole
    shown taken chosen sent written drawn held built meant told seen spent grown cut hidden broken
"""
PRONOUNS = {*_PRONOUNS.split()}
FORBIDDEN = {*PRONOUNS, *_OTHERS.split()}
PARTICIPLE = re.compile(r"[a-z]{3,}(?<!e)ed")
# The exceptions of each room: fields of public objects and of files, and names of the spec.
VAGUE_NAMES: dict[str, str] = {
    "analysis": "new reported restated",
    "cache": "broken",
    "conformance": "of omitted what",
    "extraction": "created ended failed least most others pruned "
    "renewed repeated spent stopped to unchanged uncounted unlisted",
    "ground": "answered at cached failed granted instead "
    "learned received recovered refused sent started unchanged",
    "mcp": "restated",
    "model": "ended picked",
    "plan": "cached matched",
    "read": "restated",
    "sandbox": "after granted restated unrestated",
    "table": "ended failed",
    "wire": "at elapsed wanted",
}
# The least percentage of a room's private functions that begin with a verb, where it is not yet 70.
VERBS_FIRST: dict[str, int] = {}
GOAL = 70

# As first words of functions; predicates begin with is, has, can or may.
_VERBS = """
    accept acquire add adopt advance align allow announce append apply arm ask assert assign attach await
    begin bind book bound break bring build call can cancel catch change check choose claim clean clear clip
    close collect combine come commit compare compress compute configure confirm connect consume continue
    convert copy count cover create cut decide declare decode decompress defer define delete deliver derive
    describe detach detect determine discard dispatch divide do download draw drop dump emit encode end
    enter escape estimate evaluate evict examine exclude execute exhaust exit expand expect expire explain
    export expose extend extract fail fall feed fetch fill find finish fit flatten flush fold follow forget
    format forward free freeze gather generate get give go grant group grow guess handle has hash hold
    ignore import include increase index infer inflate init insert inspect install interrupt introduce
    investigate invoke is isolate issue iter join judge keep label learn leave lift limit link list load
    locate lock log look lookup lower make map mark match may measure meet mention merge mount move must
    name narrow normalize note notify offer omit open order overrule pack pad parse pass pause pick
    place plan plot poll pop prepare print probe process propose prune publish pull punish push put query
    quote raise rank reach read receive recompress record redact reduce refer refill refresh refuse
    register reject release reload remember remove rename render renew repair repeat replace report request
    require reserve reset resolve respond restart restore restrict resume retry return reverse revise rewind
    roll round run sample save say scale scan schedule score search see seek select send separate serve set
    settle share shield shift shorten should show shut sign skip sleep slice sort spawn spell spend split
    spread start state step stitch stop store stream strip study submit subscribe suggest sum summarize
    supply suspend swap switch sync take tell terminate test throw tie touch trace track transfer transform
    translate trim truncate try turn type unlink unlock unpack unregister unsubscribe unwrap update upgrade
    upload use validate verify visit wait wake walk warn widen withdraw wrap write yield
iterate navigate observe perform postpone prefer prevent propagate protect rebuild recover reconnect reopen
rewrite rotate route satisfy seal simulate spare tabulate tally tune unite weigh
"""
VERBS = {*_VERBS.split()}


@cache
def names_by_room() -> tuple[dict[str, Counter[str]], dict[str, list[str]]]:
    """Return the variables and parameters, and the private functions, of each room."""
    variables: dict[str, Counter[str]] = {}
    functions: dict[str, list[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE)
        room = place.parts[0] if len(place.parts) > 1 else "ground"
        counts, private = variables.setdefault(room, Counter()), functions.setdefault(room, [])
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                if node.name.startswith("_") and not node.name.endswith("_") and not is_property(node):
                    private.append(node.name)
            else:
                counts.update(bound_names(node))
    return variables, functions


def bound_names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Store):
            yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
        yield node.name


def is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in function.decorator_list)


def is_vague(name: str) -> bool:
    word = "" if name.endswith("__") else name.strip("_")
    return word in FORBIDDEN or PARTICIPLE.fullmatch(word) is not None


def test_variables_are_nouns() -> None:
    """Neither pronouns nor adjectives nor participles; VAGUE_NAMES lists the exceptions."""
    faults = []
    for room, counts in names_by_room()[0].items():
        vague_names = {name for name in counts if is_vague(name)}
        if new_names := vague_names - {*VAGUE_NAMES.get(room, "").split()}:
            faults.append(f"{room}: {', '.join(sorted(new_names))}")
    assert not faults, "\n".join(["rename these:", *faults])


def test_scripts_use_nouns() -> None:
    """Neither benchmarks nor tools nor examples have a name of the house's own list."""
    faults = [
        f"{path}: {name}"
        for folder in ("benchmarks", "tools", "examples")
        for path in (TESTS.parent / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_bytes()))
        for name in bound_names(node)
        # A planted defect has the keys `old` and `new`.
        if name.strip("_") in PRONOUNS - {"new"}
    ]
    assert not faults, "\n".join(["rename these:", *faults])


def test_private_functions_begin_with_verbs() -> None:
    """VERBS_FIRST lists the rooms below the goal, each with its share, which may only grow."""
    faults = []
    for room, functions in names_by_room()[1].items():
        others = [name for name in functions if name.strip("_").split("_")[0] not in VERBS]
        share = 100 - 100 * len(others) // max(len(functions), 1)
        floor = VERBS_FIRST.get(room, GOAL)
        if share < floor:
            faults.append(f"{room} has {share} %, less than {floor} %: {', '.join(others)}")
    assert not faults, "\n".join(faults)


def test_names_of_tests_are_short() -> None:
    """At most six words after `test_`: the docstring is the sentence."""
    long = [
        f"{path.name}: {name}"
        for path in TESTS.rglob("test_*.py")
        for name in re.findall(r"^\s*(?:async )?def test_(\w+)", path.read_text(), re.MULTILINE)
        if len(name.split("_")) > 6
    ]
    assert not long
