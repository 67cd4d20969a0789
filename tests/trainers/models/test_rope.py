"""Rotary positions beside transformers: the same frequencies, in and out; the rest is refused."""

import json
import math
import warnings
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from textmill.schemas.errors import DataError, TextmillError, UsageError
from textmill.trainers.models.rope import Rope, RopeKey

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs, at import
    import torch
    import transformers
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

transformers.utils.logging.set_verbosity_error()

LONG = "original_max_position_embeddings"
LLAMA3: dict[str, Any] = dict(
    rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0
)
LLAMA3.update({"high_freq_factor": 4.0, LONG: 8192})
YARN: dict[str, Any] = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, LONG: 32768}
LINEAR: dict[str, Any] = dict(rope_type="linear", rope_theta=10000.0, factor=2.5)
GEMMA: dict[str, Any] = dict(
    full_attention={**LINEAR, "factor": 8.0}, sliding_attention=dict(rope_type="default")
)


def theirs(config, size):
    """Frequencies and attention factor of a configuration of transformers."""
    kind = config.rope_parameters["rope_type"]
    if kind == "default":
        exponents = torch.arange(0, size, 2, dtype=torch.float) / size
        return (1.0 / config.rope_parameters["rope_theta"] ** exponents).numpy(), 1.0
    frequencies, factor = ROPE_INIT_FUNCTIONS[kind](config)
    return frequencies.numpy(), factor


def llama(**values):
    """A configuration with these keys, and the content of its config.json."""
    content = dict(hidden_size=64, num_attention_heads=2, max_position_embeddings=1 << 20)
    content.update(values)
    return transformers.LlamaConfig(**json.loads(json.dumps(content))), content


FACTORS = st.floats(1, 64)
SCALED = st.one_of(
    st.fixed_dictionaries(dict(rope_type=st.just("default"))),
    st.fixed_dictionaries(dict(rope_type=st.just("linear"), factor=FACTORS)),
    st.fixed_dictionaries(
        {
            "rope_type": st.just("llama3"),
            "factor": FACTORS,
            "low_freq_factor": st.floats(0.5, 2),
            "high_freq_factor": st.floats(2.5, 16),
            LONG: st.integers(1, 1 << 18),
        }
    ),
    st.fixed_dictionaries(
        {"rope_type": st.just("yarn"), "factor": FACTORS, LONG: st.integers(1, 1 << 18)},
        optional=dict(
            beta_fast=st.floats(8, 64),
            beta_slow=st.floats(0.5, 4),
            attention_factor=st.floats(0.5, 2),
        ),
    ),
)
SIZES = st.sampled_from((2, 4, 6, 16, 64, 80, 96, 128, 256))


@given(scaling=SCALED, theta=st.floats(2, 1e8), size=SIZES, is_old=st.booleans())
def test_any_parameters_as_in_transformers(scaling, theta, size, is_old):
    """Also after they were written and read, by us and by transformers."""
    if is_old:  # transformers 4, with the first name of the type
        rest = {("type" if key == "rope_type" else key): v for key, v in scaling.items()}
        form = {"rope_theta": theta, "rope_scaling": rest}
    else:
        form = {"rope_parameters": {"rope_theta": theta, **scaling}}
    config, content = llama(head_dim=size, **form)
    rope = Rope.from_json(content, RopeKey(), where="here")
    frequencies, factor = theirs(config, size)
    ours = rope.inverse_frequencies(size)
    assert ours.dtype == np.float32 and ours.shape == (size // 2,)
    np.testing.assert_allclose(ours, frequencies, rtol=1e-6, atol=0)
    assert math.isclose(rope.attention_factor, factor, rel_tol=1e-15)
    assert Rope(**json.loads(json.dumps(asdict(rope)))) == rope
    written = json.loads(json.dumps(rope.to_json()))
    assert Rope.from_json({"rope_parameters": written}, RopeKey(), where="here") == rope
    again, _ = llama(rope_parameters=written, head_dim=size)
    np.testing.assert_array_equal(theirs(again, size)[0], frequencies)
    assert theirs(again, size)[1] == rope.attention_factor


@pytest.mark.parametrize(
    "parameters, size", [(dict(rope_theta=1e4), 64), (LLAMA3, 128), (YARN, 128), (LINEAR, 256)]
)
def test_published_parameters_are_equal_to_the_last_bits(parameters, size):
    config, content = llama(rope_parameters=parameters, head_dim=size)
    ours = Rope.from_json(content, RopeKey(), where="here").inverse_frequencies(size)
    np.testing.assert_array_max_ulp(ours, theirs(config, size)[0], 4)


def test_frequencies_and_factor_by_hand():
    np.testing.assert_array_equal(Rope().inverse_frequencies(4), np.array([1, 0.01], np.float32))
    half = Rope(rope_type="linear", factor=2)
    np.testing.assert_array_equal(half.inverse_frequencies(4), np.array([0.5, 0.005], np.float32))
    yarn = Rope.from_json({"rope_scaling": YARN}, RopeKey(), where="")
    assert yarn.attention_factor == 0.1 * math.log(4) + 1
    assert Rope.from_json({}, RopeKey(theta=5e5), where="") == Rope(rope_theta=5e5)
    odd = {"rope_parameters": {**LINEAR, "beta_fast": "x"}}  # which this type does not read
    assert Rope.from_json(odd, RopeKey(), where="") == Rope(**LINEAR)


def scaled(base, **changes):
    return {"rope_parameters": {**base, **changes}}


REFUSED = [
    *((UsageError, {"rope_theta": theta}, "rope_theta=") for theta in (0, -1.0, 1.0, 1e300)),
    (UsageError, {"rope_theta": math.nan}, "rope_theta=nan: must be from 2 to 1e+12"),
    (UsageError, {"rope_theta": 10**4000}, "rope_theta=1000"),
    (UsageError, scaled(LINEAR, factor=0.5), "factor=0.5: must be from 1 to 1e+06"),
    (UsageError, scaled(LINEAR, factor=math.inf), "factor=inf: must be from 1 to 1e+06"),
    (UsageError, scaled(YARN, **{LONG: 10**12}), f"{LONG}=1000000000000: must be from 1 to"),
    (UsageError, scaled(YARN, **{LONG: 0}), f"{LONG}=0: must be from 1 to"),
    (UsageError, scaled(YARN, attention_factor=0.0), "attention_factor=0.0: must be from 0.001"),
    (UsageError, scaled(YARN, beta_slow=40), "beta_slow=40: must be below beta_fast=32.0"),
    (UsageError, scaled(LLAMA3, low_freq_factor=4), "low_freq_factor=4: must be below high_freq"),
    (UsageError, scaled(YARN, truncate=False), "with truncate=False are not supported"),
    (UsageError, scaled(YARN, mscale=1.0), "with mscale=1.0 are not supported"),
    (UsageError, scaled({}, mrope_section=[16, 24, 24]), "with mrope_section=[16, 24, 24] are not"),
    (
        UsageError,
        {"partial_rotary_factor": 0.5},
        "with partial_rotary_factor=0.5 are not supported",
    ),
    (UsageError, {"rope_parameters": GEMMA}, "with full_attention={"),
    *(
        (UsageError, {"rope_scaling": {"type": kind}}, f"rope_type {kind!r} is not supported")
        for kind in ("longrope", "dynamic", "su", 5, ["yarn"], {})
    ),
    (DataError, {"rope_theta": "10000"}, "rope_theta is '10000' instead of a number"),
    (DataError, {"rope_theta": True}, "rope_theta is True instead of a number"),
    (DataError, scaled(LINEAR, factor="2"), "factor is '2' instead of a number"),
    (DataError, scaled(YARN, factor=[4]), "factor is [4] instead of a number"),
    (DataError, scaled(YARN, **{LONG: 4096.5}), f"{LONG} is 4096.5 instead of a whole number"),
    (DataError, scaled(YARN, **{LONG: None}), f"{LONG} is None instead of a whole number"),
    (DataError, scaled(LINEAR, factor=None), "the rotary positions lack factor"),
    (DataError, {"rope_scaling": dict(rope_type="llama3", factor=8)}, "lack low_freq_factor"),
    (DataError, {"rope_scaling": "yarn"}, "rope_scaling is 'yarn', not an object"),
    (DataError, {"rope_parameters": [1]}, "rope_parameters is [1], not an object"),
]


@pytest.mark.parametrize("kind, content, message", REFUSED)
def test_other_values_are_refused_in_one_line(kind, content, message):
    with pytest.raises(kind) as info:
        Rope.from_json(content, RopeKey(), where="--init_from=x")
    assert str(info.value).startswith("--init_from=x: config.json: ") and message in str(info.value)
    assert "\n" not in str(info.value) and len(str(info.value)) < 300


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2)
    ),
    max_leaves=3,
)
KEYS = (*YARN, *LLAMA3, "type", "beta_fast", "attention_factor", "truncate", "full_attention")


@given(
    st.dictionaries(
        st.sampled_from(
            ("rope_theta", "rope_scaling", "rope_parameters", "max_position_embeddings")
        ),
        JSON
        | st.dictionaries(st.sampled_from(KEYS), JSON | st.sampled_from(("yarn", "llama3", 2))),
    ),
    st.sampled_from(("", "full_attention")),
)
def test_any_json_is_read_or_refused(content, layers):
    try:
        rope = Rope.from_json(content, RopeKey(layers=layers), where="here")
    except TextmillError:
        return
    frequencies = rope.inverse_frequencies(8)
    assert np.isfinite(frequencies).all() and (frequencies > 0).all()
