"""logmel: f32 [samples] at 16 kHz → f32 or f16 [1, 80, frames], whisper's input features.

    context_samples  pads the samples with silence to this many (480000 is whisper's 30 s); null: no padding
    dtype            f32 or f16

frames = samples // 160, that is 100 a second. Definition (openai/whisper, audio.py): the samples reflected
by 200 at both ends, a periodic Hann window of 400 every 160, the power spectrum, 80 triangular bands on the
Slaney mel scale from 0 to 8 kHz with Slaney's area normalisation, log10 of at least 1e-10, cut off 8 below
its maximum, then (x + 4) / 4.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hailmesh.hail.buffer import DType
from hailmesh.hail.errors import TooLarge, UsageError
from hailmesh.kernels.arguments import choice, integer, optional
from hailmesh.kernels.executor import TensorSpec
from hailmesh.kernels.spec import Args, Example, KernelSpec, Shape, Tolerance

RATE = 16000
WINDOW = 400
HOP = 160
BANDS = 80
_LONGEST = RATE * 3600


def padded_samples(args: Args, samples: int) -> int:
    """How many samples the spectrogram is of, padding included."""
    return max(samples, args["context_samples"] or 0)


def _outputs(args: Args, shapes: tuple[Shape, ...]) -> tuple[TensorSpec, ...]:
    (samples,) = shapes[0]
    context = args["context_samples"]
    if samples > (context or _LONGEST):
        raise TooLarge(f"expected at most {context or _LONGEST} samples, got {samples}: split the recording")
    total = padded_samples(args, samples)
    if total <= WINDOW // 2:
        raise UsageError(f"expected over {WINDOW // 2} samples, got {total}: pad with context_samples")
    dtype = DType.F16 if args["dtype"] == "f16" else DType.F32
    return (TensorSpec("mel", dtype, (1, BANDS, total // HOP)),)


def _examples() -> Iterator[Example]:
    rng = np.random.default_rng(11)
    second = np.arange(RATE, dtype=np.float64) / RATE

    def case(name: str, samples: object, **args: object) -> Example:
        return Example(name, args, (np.asarray(samples, dtype=np.float32),))

    yield case("noise", rng.standard_normal(3 * RATE) * 0.1)
    yield case("padded", rng.standard_normal(RATE) * 0.1, context_samples=3 * RATE)
    yield case("odd", rng.standard_normal(12347) * 0.3)
    yield case("shortest", rng.standard_normal(201))
    yield case("one-sample", [0.5], context_samples=480)
    yield case("none", [], context_samples=480)
    yield case("silence", np.zeros(RATE))
    yield case("constant", np.ones(RATE))
    yield case("on-a-bin", np.sin(2 * np.pi * 1000 * second))
    yield case("between-bins", np.sin(2 * np.pi * 1234.5 * second))
    yield case("chirp", np.sin(2 * np.pi * 3800 * second * second))
    yield case("impulse", np.where(second == 0.5, 1.0, 0.0))
    yield case("clipped", np.sign(rng.standard_normal(RATE)))
    yield case("loud", rng.standard_normal(RATE) * 1e4)
    yield case("faint", rng.standard_normal(RATE) * 1e-20)
    yield case("half", rng.standard_normal(RATE) * 0.1, dtype="f16")


SPEC = KernelSpec(
    summary="whisper's log-mel spectrogram of 16 kHz samples",
    arguments={"context_samples": optional(integer(1, _LONGEST)), "dtype": choice("f32", "f16")},
    defaults={"context_samples": None, "dtype": "f32"},
    inputs=(TensorSpec("samples", DType.F32, (-1,)),),
    outputs=_outputs,
    # float32 keeps 7 digits of the loudest bin, and the scale reaches 8 digits (of power: 4) below it.
    tolerance={"F32": Tolerance(1e-4), "F16": Tolerance(2e-3)},
    examples=_examples,
)
