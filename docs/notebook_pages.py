"""The notebooks of the site as Markdown: their cells with the outputs that are
stored.
"""

import json
from typing import Any


def page(text: str, *, html: bool = True) -> str:
    """Return a notebook as a page; without `html`, outputs are their texts."""
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += [_output(output, html=html) for output in cell["outputs"]]
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, Any], *, html: bool) -> str:
    data = output.get("data", {})
    if html and "image/png" in data:
        picture = "".join(data["image/png"]).replace("\n", "")
        return (
            f'```{{raw}} html\n<img alt="The chart of this cell" '
            f'src="data:image/png;base64,{picture}">\n```'
        )
    if html and "text/html" in data:
        return "```{raw} html\n" + "".join(data["text/html"]) + "\n```"
    shown = "".join(data.get("text/plain", output.get("text", "")))
    return f"```text\n{shown.rstrip()}\n```"
