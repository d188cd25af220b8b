"""Runs the notebooks of the examples and makes pages of them: ``python docs/notebooks.py`` prints and stores outputs.

A notebook is JSON: its cells are run here in order, in one namespace, as Jupyter would run them, with no more than
Python and matplotlib. What Jupyter can do beyond that (magics, widgets) such a notebook must do without.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NOTEBOOKS = HERE.parent / "examples" / "notebooks"


def run(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return the notebook with the outputs that its cells have now: what they print, and the figures they leave."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = []
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] != "code":
            cells.append(cell)
            continue
        stdout = io.StringIO()
        with contextlib.redirect_stdout(stdout):
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
        text = [{"output_type": "stream", "name": "stdout", "text": stdout.getvalue().splitlines(keepends=True)}]
        cells.append(cell | {"outputs": text * bool(stdout.getvalue()) + figures()})
    return notebook | {"cells": cells}


def figures() -> list[dict[str, Any]]:
    """Return all open figures as outputs, and close them."""
    import matplotlib.pyplot as plt

    found = []
    for number in plt.get_fignums():
        picture = io.BytesIO()
        plt.figure(number).savefig(picture, format="png", dpi=90, metadata={"Software": None})
        data = {"image/png": base64.b64encode(picture.getvalue()).decode()}
        found.append({"output_type": "display_data", "data": data, "metadata": {}})
    plt.close("all")
    return found


def printed(notebook: dict[str, Any]) -> list[str]:
    """Return what each cell prints."""
    outputs = [cell.get("outputs", []) for cell in notebook["cells"]]
    return ["".join(line for out in found for line in out.get("text", [])) for found in outputs]


def page(notebook: dict[str, Any], name: str, folder: Path) -> str:
    """Return a notebook as Markdown, and leave its pictures in `folder`."""
    parts, drawn = [], 0
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for out in cell.get("outputs", []):
            if "text" in out:
                parts.append("```text\n" + "".join(out["text"]) + "```")
            else:
                drawn += 1
                (folder / f"{name}-{drawn}.png").write_bytes(base64.b64decode(out["data"]["image/png"]))
                parts.append(f"![what the cell above draws]({name}-{drawn}.png)")
    return "\n\n".join([*parts, f"{{download}}`Download the notebook <{name}.ipynb>`"]) + "\n"


def write_pages(folder: Path) -> None:
    """Run each notebook that has changed since its page was written, and write the page."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        target = folder / f"{path.stem}.md"
        if target.is_file() and (folder / path.name).read_bytes() == path.read_bytes():
            continue
        notebook = run(json.loads(path.read_text(encoding="utf-8")))
        target.write_text(page(notebook, path.stem, folder), encoding="utf-8")
        (folder / path.name).write_bytes(path.read_bytes())


if __name__ == "__main__":
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook = run(json.loads(path.read_text(encoding="utf-8")))
        print(path.stem, *filter(None, printed(notebook)), sep="\n\n")
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
