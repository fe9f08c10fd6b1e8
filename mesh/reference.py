"""The reference requests: every active unit's golden case, asked over real HTTP and judged."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from hailmesh.hail.errors import MeshError
from hailmesh.mesh.cli.client import Client, File
from hailmesh.mesh.selftest import Verdict, judge


@dataclass(frozen=True, slots=True)
class Case:
    """One golden case of a unit's image. `data` are the input's bytes, `expect` as `selftest.judge` reads."""

    unit: str
    modality: str
    name: str
    media_type: str
    data: bytes
    params: dict[str, Any]
    expect: list[dict[str, Any]]

    @property
    def question(self) -> str:
        """What is asked, for a person."""
        return self.data.decode() if self.media_type.startswith("text/") else self.name


@dataclass(frozen=True, slots=True)
class Outcome:
    """`total_ms` as the client measured it; `timings` as the node did, in milliseconds."""

    case: Case
    answer: dict[str, Any]
    total_ms: float
    timings: dict[str, float]
    verdict: Verdict


def ask(client: Client, case: Case) -> Outcome:
    """Sends the case to the node; a refusal is an outcome too."""
    fields: dict[str, Any] = {case.modality: File(case.name, case.media_type, case.data)}
    if case.media_type.startswith("text/"):
        fields = {case.modality: case.data.decode()}
    if case.params:
        fields["params"] = json.dumps(case.params)
    began = time.perf_counter()
    try:
        response = client.upload("/v1/invoke", fields, modalities=case.modality, unit=case.unit)
    except MeshError as error:
        return Outcome(case, {}, (time.perf_counter() - began) * 1e3, {}, Verdict(False, str(error)))
    total_ms = (time.perf_counter() - began) * 1e3
    result = response["results"][case.modality]
    return Outcome(case, result, total_ms, result.get("timings", {}), judge(result, case.expect))


def ask_all(client: Client, cases: list[Case]) -> list[Outcome]:
    """One after the other, so that each one's times are its own."""
    return [ask(client, case) for case in cases]
