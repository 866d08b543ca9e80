"""The site of the documents: `nox -s docs`. No build needs the network."""

import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from docutils.io import StringOutput
from sphinx.builders.text import TextBuilder
from sphinx.ext.napoleon.docstring import GoogleDocstring
from sphinx.search.en import SearchEnglish
from sphinx.writers.text import TextWriter

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))

import notebook_pages  # noqa: E402
from drawings import draw_all  # noqa: E402

project = "asyncfin"
author = "the asyncfin contributors"
copyright = "the asyncfin contributors"
release = metadata.version("asyncfin")

source_suffix = {
    ".md": "markdown",
    ".ipynb": "markdown",
}  # a notebook becomes Markdown when it is read
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "_generated"]
nitpicky = False

html_theme = "furo"
html_title = "asyncfin"
html_static_path = ["_static", "_generated"]
html_css_files = ["tables.css"]
html_show_sphinx = False
html_copy_source = False

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "html_image"]

# Names in docstrings are in single backticks: those that have an entry become links.
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
# The source of an attrs class names its own internals in place of the defaults.
autodoc_preserve_defaults = False
python_use_unqualified_type_names = True
# A parameter a line, where a signature is longer than a line.
python_maximum_signature_line_length = 88
python_trailing_comma_in_multi_line_signatures = False
napoleon_use_rtype = False
napoleon_use_ivar = True

# Documents that are elsewhere in the repository, and their pages.
ELSEWHERE = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
    "SECURITY.md": "security.md",
    "benchmarks/RESULTS.md": "results.md",
}
SOURCES = {name.removesuffix(".md"): ROOT / file for file, name in ELSEWHERE.items()}
SOURCES["index"] = ROOT / "README.md"

# The names of unions that signatures would spell out.
ALIASES = {
    "~asyncfin.model.selection.Exact | ~asyncfin.model.selection.FiscalRange"
    " | ~asyncfin.model.selection.Trailing"
    " | ~asyncfin.model.selection.Rule": "~asyncfin.typing.PeriodSelection",
    "~typing.Literal['original', 'latest_restated']": "~asyncfin.typing.ValueVersion",
    "~typing.Literal['interactive', 'bulk']": "~asyncfin.typing.Lane",
    "~typing.Literal['long', 'wide']": "~asyncfin.typing.Layout",
}


def _whole_docstring(self: GoogleDocstring) -> tuple[str, list[str]]:
    """Take no first word before a colon for the type of a property: it has an
    annotation.
    """
    return "", type(self)(self._dedent(self._consume_to_end()), self._config).lines()


GoogleDocstring._consume_inline_attribute = _whole_docstring


class Search(SearchEnglish):
    """Sphinx leaves numbers out of its index, and readers look for `429`."""

    def word_filter(self, word: str) -> bool:
        return bool(re.fullmatch(r"\d{3}", word)) or super().word_filter(word)


def unreleased() -> str:
    """Return the changes that no release has gathered yet, by kind."""
    kinds: dict[str, list[str]] = {}
    for path in sorted((ROOT / "changelog.d").glob("*.*.md")):
        lines = path.read_text().strip().splitlines()
        kinds.setdefault(path.name.split(".")[-2].capitalize(), []).extend(
            f"- {line}" for line in lines
        )
    if not kinds:
        return ""
    return "\n\n".join(
        [
            "\n## Unreleased",
            *(f"### {kind}\n\n" + "\n".join(kinds[kind]) for kind in sorted(kinds)),
        ]
    )


def read_source(app: Any, page: str, source: list[str]) -> None:
    """Read the README as the front page, and let links lead to pages of the site."""
    if page in SOURCES:
        app.env.note_dependency(str(SOURCES[page]))
        text = SOURCES[page].read_text()
        for folder in ("docs/", "../docs/"):
            text = text.replace(f"]({folder}", "](").replace(
                f' src="{folder}', ' src="'
            )
        if page != "index":  # the page has a title
            source[0], text = text.partition("\n")[2], source[0]
        source[0] = text + source[0]
    if page == "changes":
        source[0] += unreleased()
    elif page.startswith("notebooks/"):
        source[0] = notebook_pages.page(source[0])
    if (
        HERE / "_generated" / "explorer-small.png"
    ).exists():  # the last one that screenshots.py takes
        source[0] = re.sub(
            r'(\]\(|src=")_static/explorer-', r"\1_generated/explorer-", source[0]
        )
    for file, name in ELSEWHERE.items():
        source[0] = (
            source[0]
            .replace(f"]({file})", f"]({name})")
            .replace(f"](../{file})", f"]({name})")
        )


def tidy_docstring(
    app: object, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Prepare the lines of a docstring for napoleon, which reads some of them otherwise
    than we mean them.
    """
    for at in range(len(lines) - 2):
        line, below, code = lines[at : at + 3]
        indented = len(code) - len(code.lstrip()) > len(line) - len(line.lstrip())
        if (
            indented
            and line.endswith(":")
            and not line.endswith("::")
            and not below.strip()
        ):
            lines[at] = (
                line + ":"
            )  # code: it would take it for another section, or a quotation


def tidy_signature(app, what, name, obj, options, signature, returns):  # type: ignore[no-untyped-def]
    """Leave out the signatures of classes that only the library makes, and name its
    unions.
    """
    text = obj.__doc__ or ""
    if (
        what == "class"
        and "Attributes:" in text
        and "Args:" not in text
        and "sandbox" not in name
    ):
        return "", None
    if what == "exception" or signature == "(*args, **kwargs)":  # that of a protocol
        return signature and "", None
    # Defaults that are functions or classes have names; arguments that begin with an
    # underscore are internal.
    signature = signature and re.sub(
        r"<(?:built-in )?function (\w+)>", r"\1", signature
    )
    signature = signature and re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", signature)
    signature = signature and re.sub(
        r"(, )?(\*, )?(?<!\w)_\w+: [^=]*=[^,)]*", "", signature
    )
    for spelt, alias in ALIASES.items():
        signature = signature and signature.replace(spelt, alias)
        returns = returns and returns.replace(spelt, alias)
    return signature, returns


def finish(app, failure: Exception | None) -> None:  # type: ignore[no-untyped-def]
    """Write llms.txt, and let the search take numbers."""
    if failure is not None or app.builder.name != "html":
        return
    texts = [_text(app, page) for page in _pages(app.env)]
    (Path(app.outdir) / "llms.txt").write_text("\n\n".join(texts))
    script = Path(app.outdir) / "_static" / "searchtools.js"
    text, skipping = script.read_text(), r" || queryTerm.match(/^\d+$/)"
    if skipping not in text and r"\d+" in text:
        raise RuntimeError(
            "searchtools.js of this Sphinx leaves numbers out in another way"
        )
    script.write_text(text.replace(skipping, ""))


def _pages(env, page: str = "index") -> list[str]:  # type: ignore[no-untyped-def]
    """Return all pages in the order of the tables of contents."""
    below = [
        name
        for name in env.toctree_includes.get(page, ())
        if name in env.found_docs and name != page
    ]
    return [page, *(each for name in below for each in _pages(env, name))]


def _text(app, page: str) -> str:  # type: ignore[no-untyped-def]
    """Return a page's own text; a page of the reference as autodoc has filled it."""
    if page.startswith("notebooks/"):
        return notebook_pages.page((HERE / f"{page}.ipynb").read_text(), html=False)
    if not page.startswith("reference/"):
        return SOURCES.get(page, HERE / f"{page}.md").read_text() + (
            unreleased() if page == "changes" else ""
        )
    builder = TextBuilder(app, app.env)
    builder.init()
    builder.current_docname = page
    writer = TextWriter(builder)
    return writer.write(
        app.env.get_and_resolve_doctree(page, builder), StringOutput(encoding="unicode")
    )


def setup(app) -> None:  # type: ignore[no-untyped-def]
    draw_all(HERE / "_generated")
    app.add_search_language(Search)
    # Before napoleon.
    app.connect("autodoc-process-docstring", tidy_docstring, priority=100)
    app.connect("autodoc-process-signature", tidy_signature)
    app.connect("source-read", read_source)
    app.connect("build-finished", finish)
