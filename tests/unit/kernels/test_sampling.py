"""The next token."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from hailmesh.hail.errors import DeviceError, TooLarge, UsageError
from hailmesh.kernels.sampling import Sampled, SamplingParams, sample

LOGITS = np.log(np.array([0.05, 0.4, 0.1, 0.25, 0.2], np.float32))


def params(**fields: Any) -> SamplingParams:
    return SamplingParams.parse(json.dumps(fields).encode())


def draw(logits: np.ndarray, chosen: SamplingParams, count: int = 4000, mask: Any = None) -> np.ndarray:
    """How often each token was drawn."""
    rng = np.random.default_rng(1)
    tokens = [sample(logits, chosen, rng, mask).token for _ in range(count)]
    return np.bincount(tokens, minlength=len(logits)) / count


def greedy(logits: np.ndarray = LOGITS, mask: Any = None, **fields: Any) -> int:
    return sample(logits, params(**fields), np.random.default_rng(0), mask).token


def test_greedy_is_the_likeliest_and_of_equals_the_first() -> None:
    assert greedy() == 1
    assert greedy(np.array([1, 3, 3, 2], np.float32)) == 1


def test_what_is_forbidden_is_never_chosen() -> None:
    assert greedy(suppress=[1]) == 3
    assert greedy(suppress=[1, 3, 99]) == 4
    assert greedy(max_id=0) == 0
    assert greedy(max_id=2, suppress=[1]) == 2
    assert greedy(mask=np.array([1, 0, 1, 0, 1], np.uint8)) == 4
    shares = draw(
        LOGITS, params(temperature=1, suppress=[1], max_id=3), mask=np.array([1, 1, 0, 1, 1], np.uint8)
    )
    np.testing.assert_allclose(shares, [1 / 6, 0, 0, 5 / 6, 0], atol=0.03)


def test_nothing_left_to_choose_from_is_told() -> None:
    with pytest.raises(UsageError, match="no token is left"):
        greedy(mask=np.zeros(5, np.uint8))
    with pytest.raises(UsageError, match="no token is left"):
        greedy(suppress=[0, 1], max_id=1)


def test_a_mask_of_another_length_is_refused() -> None:
    with pytest.raises(UsageError, match="mask of 5 bytes"):
        greedy(mask=np.ones(4, np.uint8))


@pytest.mark.parametrize("broken", [np.nan, np.inf])
@pytest.mark.parametrize("temperature", [0, 1])
def test_logits_that_are_no_numbers_are_the_graph_s_fault(broken: float, temperature: float) -> None:
    logits = LOGITS.copy()
    logits[2] = broken
    with pytest.raises(DeviceError, match="not finite"):
        greedy(logits, temperature=temperature)


def test_drawing_follows_the_distribution_at_its_temperature() -> None:
    probabilities = np.exp(LOGITS)
    np.testing.assert_allclose(draw(LOGITS, params(temperature=1)), probabilities, atol=0.03)
    squared = probabilities**2 / (probabilities**2).sum()
    np.testing.assert_allclose(draw(LOGITS, params(temperature=0.5)), squared, atol=0.03)


def test_the_coldest_temperature_is_greedy() -> None:
    assert draw(LOGITS * 100, params(temperature=0.001), 50)[1] == 1


def test_top_k_leaves_the_k_likeliest() -> None:
    shares = draw(LOGITS, params(temperature=1, top_k=2))
    np.testing.assert_allclose(shares, [0, 0.4 / 0.65, 0, 0.25 / 0.65, 0], atol=0.03)


def test_top_p_leaves_the_fewest_that_reach_it() -> None:
    np.testing.assert_allclose(
        draw(LOGITS, params(temperature=1, top_p=0.5)), [0, 8 / 13, 0, 5 / 13, 0], atol=0.03
    )
    assert draw(LOGITS, params(temperature=1, top_p=0.39), 50)[1] == 1


def test_top_p_counts_from_what_top_k_leaves() -> None:
    # Of the two likeliest, token 1 has 0.4 / 0.65 = 0.615.
    assert draw(LOGITS, params(temperature=1, top_k=2, top_p=0.6), 50)[1] == 1


def test_top_p_of_a_flat_distribution_keeps_as_many_as_it_takes() -> None:
    flat = np.zeros(800, np.float32)
    assert np.count_nonzero(draw(flat, params(temperature=1, top_p=0.5))) == pytest.approx(400, abs=5)


def test_the_same_seed_draws_the_same_and_another_one_does_not() -> None:
    logits = np.random.default_rng(2).standard_normal(1000).astype(np.float32)

    def drawn(seed: int) -> list[int]:
        rng = np.random.default_rng(seed)
        return [sample(logits, params(temperature=1, top_p=0.9), rng).token for _ in range(20)]

    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)


@pytest.mark.parametrize("temperature", [0, 0.7])
def test_logprobs_are_of_the_model_s_distribution(temperature: float) -> None:
    sampled = sample(LOGITS, params(temperature=temperature, logprobs=3), np.random.default_rng(0))
    assert sampled.logprob == pytest.approx(float(LOGITS[sampled.token]), abs=1e-5)
    assert [token for token, _ in sampled.top] == [1, 3, 4]
    np.testing.assert_allclose([logprob for _, logprob in sampled.top], np.log([0.4, 0.25, 0.2]), atol=1e-5)


def test_logprobs_count_allowed_tokens_only() -> None:
    sampled = sample(LOGITS, params(suppress=[1], max_id=3, logprobs=5), np.random.default_rng(0))
    assert [token for token, _ in sampled.top] == [3, 2, 0]
    assert sampled.logprob == pytest.approx(np.log(0.25 / 0.4), abs=1e-5)


def test_the_logits_are_left_as_they_are() -> None:
    logits = LOGITS.copy()
    logits.flags.writeable = False
    for chosen in (params(), params(suppress=[1]), params(temperature=1, top_p=0.5, logprobs=2)):
        sample(logits, chosen, np.random.default_rng(0), np.ones(5, np.uint8))
    assert sample(logits, params(), np.random.default_rng(0)) == Sampled(1)


def test_parameters_have_defaults_and_null_means_the_default() -> None:
    assert SamplingParams.parse(b"") == SamplingParams.parse(b"{}") == SamplingParams()
    assert params(temperature=None, top_p=None, seed=None, mask=None) == SamplingParams()
    given = params(temperature=1, top_k=5, top_p=0.5, seed=7, suppress=[1, 2], max_id=9, mask=3, logprobs=1)
    assert given == SamplingParams(1.0, 5, 0.5, 7, (1, 2), 9, 3, 1)


def test_equal_parameters_are_parsed_once() -> None:
    assert SamplingParams.parse(b'{"top_k": 3}') is SamplingParams.parse(b'{"top_k": 3}')


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"temprature": 1}, "'temprature'"),
        ({"temperature": -1}, "temperature is a number from 0"),
        ({"temperature": 1e-9}, "temperature is 0 for greedy"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_k": 1.5}, "top_k"),
        ({"top_k": -1}, "top_k"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"seed": -1}, "seed"),
        ({"suppress": 3}, "suppress"),
        ({"suppress": [-1]}, r"suppress\[0\]"),
        ({"suppress": [True]}, r"suppress\[0\]"),
        ({"max_id": -1}, "max_id"),
        ({"mask": 0}, "mask"),
        ({"logprobs": 1000}, "logprobs"),
    ],
)
def test_a_wrong_parameter_is_named(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        params(**fields)


@pytest.mark.parametrize("raw", [b"{", b"[]", b"3", b"\xff"])
def test_what_is_no_json_object_is_refused(raw: bytes) -> None:
    with pytest.raises(UsageError, match="JSON"):
        SamplingParams.parse(raw)


def test_parameters_beyond_the_limit_are_too_large() -> None:
    with pytest.raises(TooLarge):
        SamplingParams.parse(b" " * 70000)
