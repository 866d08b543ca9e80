"""The site of the documents: `nox -s docs`. No build needs the network."""

import sys
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from drawings import draw_all  # noqa: E402

project = "asyncfin"
author = "the asyncfin contributors"
copyright = "the asyncfin contributors"
release = metadata.version("asyncfin")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "_generated"]
nitpicky = False

html_theme = "furo"
html_title = "asyncfin"
html_static_path = ["_static", "_generated"]
html_show_sphinx = False
html_copy_source = False

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

# Names in docstrings stand in single backticks.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "separated"
python_use_unqualified_type_names = True
napoleon_use_rtype = False
napoleon_use_ivar = True

TEXTS = [
    "../README.md",
    *(
        f"{name}.md"
        for name in (
            "guide",
            "extraction",
            "machines",
            "pacing",
            "caching",
            "web",
            "sandbox",
            "cli",
            "schema",
        )
    ),
    "dataset-format.md",
]


def write_llms(app: object, failure: Exception | None) -> None:
    """Write all documents into one text for assistants, beside the pages."""
    if failure is None:
        texts = [(HERE / name).read_text() for name in TEXTS if (HERE / name).exists()]
        (Path(app.outdir) / "llms.txt").write_text("\n\n".join(texts))  # type: ignore[attr-defined]


# Documents that stand elsewhere in the repository, and their pages.
ELSEWHERE = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
    "benchmarks/RESULTS.md": "results.md",
}


def read_source(app: object, page: str, source: list[str]) -> None:
    """Read the README as the front page, and let links lead to pages of the site."""
    if page == "index":
        source[0] = (HERE.parent / "README.md").read_text().replace("](docs/", "](") + source[0]
    for file, name in ELSEWHERE.items():
        source[0] = source[0].replace(f"]({file})", f"]({name})").replace(f"](../{file})", f"]({name})")


def show_examples(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Show as code what is indented below a line that ends with a colon, and a blank line."""
    for at in range(len(lines) - 2):
        line, below, code = lines[at : at + 3]
        indented = len(code) - len(code.lstrip()) > len(line) - len(line.lstrip())
        if indented and line.endswith(":") and not line.endswith("::") and not below.strip():
            lines[at] = line + ":"


def setup(app) -> None:  # type: ignore[no-untyped-def]
    draw_all(HERE / "_generated")
    # Before napoleon, which would take some of these for its own sections.
    app.connect("autodoc-process-docstring", show_examples, priority=100)
    app.connect("source-read", read_source)
    app.connect("build-finished", write_llms)
