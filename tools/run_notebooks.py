"""Run the notebooks of docs/notebooks in this process, and store what their cells show.

python tools/run_notebooks.py
"""

import asyncio
import atexit
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.pylabtools import select_figure_formats
from IPython.display import display
from IPython.utils.capture import capture_output
from matplotlib import pyplot
from traitlets.config import Config

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
KEPT = ("text/plain", "text/html", "image/png")


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


async def run(sources: Sequence[str]) -> list[list[dict[str, Any]]]:
    """Return the outputs of each cell, as a notebook stores them.

    Raises:
        Exception: that of the first cell that fails.
    """
    with _shell() as shell:
        return [
            await _outputs(shell, source, number)
            for number, source in enumerate(sources, 1)
        ]


@contextmanager
def _shell() -> Iterator[InteractiveShell]:
    shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    matplotlib.use("agg")
    select_figure_formats(shell, {"png"})
    try:
        yield shell
    finally:
        shell.restore_sys_module_state()
        atexit.unregister(shell.atexit_operations)
        shell.atexit_operations()
        InteractiveShell.clear_instance()


async def _outputs(
    shell: InteractiveShell, source: str, number: int
) -> list[dict[str, Any]]:
    # The trap first: it would replace the hook that captures what the last line shows.
    with shell.display_trap, capture_output() as captured:
        result = await shell.run_cell_async(
            source, transformed_cell=shell.transform_cell(source)
        )
        for figure in map(
            pyplot.figure, pyplot.get_fignums()
        ):  # as a notebook does after each cell
            display(figure)
        pyplot.close("all")
    result.raise_error()
    outputs: list[dict[str, Any]] = []
    if captured.stdout:
        outputs.append(
            {"output_type": "stream", "name": "stdout", "text": _lines(captured.stdout)}
        )
    for shown in captured.outputs:
        data = {
            kind: text if kind == "image/png" else _lines(text)
            for kind, text in shown._repr_mimebundle_()[0].items()
            if kind in KEPT
        }
        if "image/png" in data:
            outputs.append(
                {"output_type": "display_data", "metadata": {}, "data": data}
            )
        else:
            outputs.append(
                {
                    "output_type": "execute_result",
                    "execution_count": number,
                    "metadata": {},
                    "data": data,
                }
            )
    return outputs


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def store(path: Path) -> None:
    """Run a notebook, and write it with its outputs."""
    notebook = json.loads(path.read_text())
    cells = code_cells(notebook)
    outputs = asyncio.run(run(["".join(cell["source"]) for cell in cells]))
    for number, (cell, output) in enumerate(zip(cells, outputs, strict=True), 1):
        cell.update(execution_count=number, outputs=output)
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    for path in sorted(FOLDER.glob("*.ipynb")):
        store(path)
        print(path.name)
