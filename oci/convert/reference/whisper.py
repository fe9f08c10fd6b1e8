"""Whisper from a CTranslate2 file's weights: log-mel, encoder, decoder, greedy transcription."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hailmesh.oci.convert.ct2 import Model
from hailmesh.oci.convert.quant import F32, Array
from hailmesh.oci.convert.reference.functions import attention, gelu, join_heads, layer_norm, split_heads

RATE = 16000
WINDOW = 400
HOP = 160
BANDS = 80


def _mel_scale(hertz: Array) -> Array:
    """Slaney's scale: linear below 1 kHz, logarithmic above."""
    above = 15 + np.log(np.maximum(hertz, 1e-9) / 1000) * 27 / np.log(6.4)
    return np.where(hertz < 1000, hertz * 3 / 200, above)


def mel_filters() -> F32:
    """Triangles of equal area [bands, WINDOW / 2 + 1], evenly spaced on Slaney's mel scale up to 8 kHz."""
    fine = np.linspace(0, RATE / 2, 200_001)
    centres = np.interp(np.linspace(0, _mel_scale(fine[-1:])[0], BANDS + 2), _mel_scale(fine), fine)
    bins = np.linspace(0, RATE / 2, WINDOW // 2 + 1)
    rising = (bins - centres[:-2, None]) / np.diff(centres)[:-1, None]
    falling = (centres[2:, None] - bins) / np.diff(centres)[1:, None]
    triangles = np.maximum(0, np.minimum(rising, falling))
    filters: F32 = (triangles * 2 / (centres[2:] - centres[:-2])[:, None]).astype(np.float32)
    return filters


def log_mel(samples: F32) -> F32:
    """[bands, frames] of mono samples at 16 kHz, a frame every 10 ms."""
    padded = np.pad(samples, WINDOW // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP][:-1]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    power = np.abs(np.fft.rfft(frames * window)) ** 2
    logs = np.log10(np.maximum(mel_filters() @ power.T, 1e-10))
    mel: F32 = ((np.maximum(logs, logs.max() - 8) + 4) / 4).astype(np.float32)
    return mel


def _convolve(x: F32, weight: F32, bias: F32, stride: int) -> F32:
    """A 1-D convolution of [channels, S] with kernel 3, one zero of padding on both sides."""
    padded = np.pad(x, ((0, 0), (1, 1)))
    taps = np.lib.stride_tricks.sliding_window_view(padded, 3, axis=1)[:, ::stride]
    out: F32 = np.einsum("oik,isk->os", weight, taps, optimize=True) + bias[:, None]
    return out


@dataclass(frozen=True, slots=True)
class Whisper:
    """The model over whole sequences; `x` is [S, width] throughout."""

    model: Model

    @property
    def heads(self) -> int:
        return int(self.model.float32("decoder/num_heads"))

    def _linear(self, x: F32, name: str) -> F32:
        out: F32 = x @ self.model.float32(name + "/weight").T + self.model.float32(name + "/bias")
        return out

    def _norm(self, x: F32, name: str) -> F32:
        return layer_norm(x, self.model.float32(name + "/gamma"), self.model.float32(name + "/beta"))

    def _layers(self, side: str) -> range:
        count = sum(
            name.startswith(side) and name.endswith("ffn/linear_0/bias") for name in self.model.variables
        )
        return range(count)

    def _self_attention(self, x: F32, name: str, *, causal: bool) -> F32:
        qkv = self._linear(self._norm(x, name + "/layer_norm"), name + "/linear_0")
        parts = (split_heads(part, self.heads) for part in np.split(qkv, 3, axis=-1))
        return x + self._linear(join_heads(attention(*parts, causal=causal)), name + "/linear_1")

    def _feed_forward(self, x: F32, name: str) -> F32:
        h = gelu(self._linear(self._norm(x, name + "/layer_norm"), name + "/linear_0"))
        return x + self._linear(h, name + "/linear_1")

    def encode(self, mel: F32) -> F32:
        """mel [bands, frames] → [frames / 2, width]"""
        x = mel
        for conv, stride in (("encoder/conv1", 1), ("encoder/conv2", 2)):
            weight, bias = self.model.float32(conv + "/weight"), self.model.float32(conv + "/bias")
            x = gelu(_convolve(x, weight, bias, stride))
        x = x.T + self.model.float32("encoder/position_encodings/encodings")[: x.shape[1]]
        for layer in self._layers("encoder"):
            x = self._self_attention(x, f"encoder/layer_{layer}/self_attention", causal=False)
            x = self._feed_forward(x, f"encoder/layer_{layer}/ffn")
        return self._norm(x, "encoder/layer_norm")

    def cross(self, encoded: F32) -> list[tuple[F32, F32]]:
        """Every decoder layer's keys [heads, head size, A] and values [heads, A, head size]."""
        result = []
        for layer in self._layers("decoder"):
            both = self._linear(encoded, f"decoder/layer_{layer}/attention/linear_1")
            keys, values = (split_heads(part, self.heads) for part in np.split(both, 2, axis=-1))
            result.append((keys.transpose(0, 2, 1), values))
        return result

    def logits(self, ids: Sequence[int], cross: list[tuple[F32, F32]]) -> F32:
        """Logits [S, V] after each token of `ids`."""
        embedding = self.model.float32("decoder/embeddings/weight")
        x = (
            embedding[np.asarray(ids)]
            + self.model.float32("decoder/position_encodings/encodings")[: len(ids)]
        )
        for layer, (keys, values) in zip(self._layers("decoder"), cross, strict=True):
            block = f"decoder/layer_{layer}"
            x = self._self_attention(x, block + "/self_attention", causal=True)
            query = self._linear(
                self._norm(x, block + "/attention/layer_norm"), block + "/attention/linear_0"
            )
            mixed = attention(split_heads(query, self.heads), keys.transpose(0, 2, 1), values, causal=False)
            x = x + self._linear(join_heads(mixed), block + "/attention/linear_2")
            x = self._feed_forward(x, block + "/ffn")
        final: F32 = self._norm(x, "decoder/layer_norm") @ embedding.T
        return final
