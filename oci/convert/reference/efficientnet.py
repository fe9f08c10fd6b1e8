"""EfficientNet-lite0 with batch normalization as published, in float32."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hailmesh.oci.convert.efficientnet import EPSILON, RELU6_MAX, STAGES, same_padding
from hailmesh.oci.convert.quant import F32, Array
from hailmesh.oci.convert.reference.functions import softmax


def _convolve(x: F32, weight: F32, stride: int) -> F32:
    """[C, H, W] with weight [out, C or 1 (depthwise), k, k], "SAME" padding."""
    kernel = weight.shape[-1]
    before, after, _ = same_padding(x.shape[-1], kernel, stride)
    padded = np.pad(x, ((0, 0), (before, after), (before, after)))
    taps = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(1, 2))
    taps = taps[:, ::stride, ::stride]
    if weight.shape[1] == 1 and len(x) > 1:
        depthwise: F32 = np.einsum("cyxij,cij->cyx", taps, weight[:, 0], optimize=True)
        return depthwise
    columns = taps.transpose(0, 3, 4, 1, 2).reshape(weight[0].size, -1)
    out: F32 = (weight.reshape(len(weight), -1) @ columns).reshape(len(weight), *taps.shape[1:3])
    return out


def probabilities(weights: Mapping[str, Array], image: F32) -> tuple[F32, F32]:
    """(probabilities [classes], embedding [1280]) of one normalized picture [3, 224, 224]."""

    def layer(x: F32, conv: str, norm: str, stride: int = 1, relu6: bool = True) -> F32:
        y = _convolve(x, weights[conv + ".weight"], stride)
        mean, variance, gamma, beta = (
            weights[f"{norm}.{part}"][:, None, None]
            for part in ("running_mean", "running_var", "weight", "bias")
        )
        y = (y - mean) / np.sqrt(variance + np.float32(EPSILON)) * gamma + beta
        clipped: F32 = np.clip(y, 0, RELU6_MAX)
        return clipped if relu6 else y

    x = layer(image, "_conv_stem", "_bn0", 2)
    index = 0
    for stage in STAGES:
        for repeat in range(stage.repeats):
            name = f"_blocks.{index}."
            y = x
            if name + "_expand_conv.weight" in weights:
                y = layer(y, name + "_expand_conv", name + "_bn0")
            y = layer(y, name + "_depthwise_conv", name + "_bn1", 1 if repeat else stage.stride)
            y = layer(y, name + "_project_conv", name + "_bn2", relu6=False)
            x = x + y if repeat else y
            index += 1
    embedding = layer(x, "_conv_head", "_bn1").mean((1, 2))
    return softmax(weights["_fc.weight"] @ embedding + weights["_fc.bias"]), embedding
