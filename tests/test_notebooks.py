"""The notebooks run and find what they claim; `make notebooks` renews their pictures."""

import json
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[1] / "examples" / "notebooks"
CLAIMS = {
    "images": lambda said: (
        abs(said["est"].noise_rate_ - (said["labels"] != said["true"]).mean()) < 0.02
        and said["right"] > 0.9
        and said["forward"] > said["plain"] + 0.01
    ),
    "tables": lambda said: (
        said["low"] < 0.3 < said["high"]
        and said["wrong"][said["found"]].mean() > 0.8
        and said["recall"]["weighted"] > said["recall"]["plain"] + 0.05
    ),
    "texts": lambda said: (
        (said["topics"] != said["true"])[said["suspects"].index].mean() > 0.9
        and said["est"].verified_.rate.low < 0.11 < said["est"].verified_.rate.high
    ),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_notebook_finds_what_it_claims(name, monkeypatch):
    """All cells of code, one after another, without a warning."""
    monkeypatch.setenv("MPLBACKEND", "agg")
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("agg")
    said = {"__name__": "__main__"}
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text("utf-8"))["cells"]
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), said)
    plt.close("all")
    assert CLAIMS[name](said)


@pytest.mark.parametrize("name", CLAIMS)
def test_notebook_shows_its_output(name):
    """Pictures are in the file, and nothing that failed."""
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text("utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not any(
        output["output_type"] == "error" or output.get("name") == "stderr" for output in outputs
    )
