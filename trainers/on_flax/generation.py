"""Continues texts with a decoder, in one jitted loop with a cache.

Each token's keys and values are computed once. Prompts of different lengths share a batch: they are
padded at the right, and each row's new tokens replace its padding.

Legend: B prompts, V vocabulary, E embedding; P tokens of the longest prompt, T new tokens at most,
M = P + T positions.
"""

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from textmill.schemas.commands.terminal import say
from textmill.schemas.errors import UsageError, flag
from textmill.trainers.flags.run_flags import ComputeFlags, RunFlags
from textmill.trainers.flags.task_flags import GenerationFlags
from textmill.trainers.models.chat_format import ChatFormat
from textmill.trainers.models.set_tokenizer import leading_ids, open_tokenizer
from textmill.trainers.on_flax.flax_attention import Context
from textmill.trainers.on_flax.flax_decoder import DecoderForCausalLM
from textmill.trainers.on_flax.layers import KVCache, Params, graph_of, to_params
from textmill.trainers.on_flax.precision import compute_dtype, products
from textmill.trainers.run.trained import Trained

WIDTH = 16  # prompts are padded to a multiple of this, so that few lengths are compiled
SHORTEST_WIDTH = 64  # of prompts of a conversation, which are padded to powers of two
TOKENS_AT_ONCE = 8  # of an answer, before they are shown


def write_texts(
    trained: Trained, run_flags: RunFlags, flags: GenerationFlags, text: str, *, is_message: bool
) -> list[str]:
    """The text with each continuation, or the answers to a message.

    Raises:
      UsageError: the model or the flags cannot continue the text.
      DataError: a file is broken.
    """
    tokenizer = _tokenizer_of(trained)
    if is_message:
        chat = _chat_of(trained)
        prefix, text, end = [], chat.prompt(text), chat.end_of_turn
    else:
        start, end = trained.prefix_ids, ""
        prefix = leading_ids(tokenizer) if start is None else list(start)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    if prefix and ids[: len(prefix)] == prefix:  # as chat templates render it
        begin = " ".join(map(tokenizer.id_to_token, prefix))
        _note(f"note: the text begins with {begin}, so generation adds no second one")
        prefix = []
    prompt, shown = [*prefix, *ids], [] if is_message else ids
    _check_prompt(prompt, trained)
    output, speed = _generate(trained, run_flags.compute, flags, prompt)
    _note(speed)
    rows = (output.ids[row, : output.lengths[row]].tolist() for row in range(flags.samples))
    return [_until(tokenizer.decode(shown + ids), end) for ids in rows]


class FlaxChat:
    """A model on its device that answers conversations, see `ChatModel`.

    Its programs are compiled for prompts of up to 64, 128, 256, ... tokens.
    """

    def __init__(self, trained: Trained, run_flags: RunFlags, flags: GenerationFlags):
        """Loads the weights; raises like `write_texts`."""
        self._trained, self._compute, self._flags = trained, run_flags.compute, flags
        self._tokenizer, self._format = _tokenizer_of(trained), _chat_of(trained)
        self._model = _load(trained, self._compute)
        self._programs: dict[Sampling, Any] = {}

    def newest(self, turns: list[str]) -> list[str]:
        """The turns without the oldest, which leave no room for an answer."""
        most = self._trained.config.max_positions
        room = min(self._flags.max_new_tokens, most // 2)
        while len(turns) > 1 and len(self._prompt(turns)) + room > most:
            turns = turns[2:]
        return turns

    def answer(self, turns: list[str]) -> Iterator[str]:
        """The answer as it grows: each text begins with the one before."""
        prompt, end = self._prompt(turns), self._format.end_of_turn
        _check_prompt(prompt, self._trained)
        rule = _rule(self._trained, self._flags, prompt)
        width = max(SHORTEST_WIDTH, 1 << (len(prompt) - 1).bit_length())
        inputs = _inputs(self._trained, prompt, width, rule, 1, self._compute.seed)
        if rule not in self._programs:
            self._programs[rule] = [*map(jax.jit, _loop(self._model.graph, rule))]
        begin, extend = self._programs[rule]
        params, dtype = self._model.params, self._model.dtype
        with products(dtype):
            loop = begin(params, *inputs)
        text, until = "", 0
        while True:
            until = min(until + TOKENS_AT_ONCE, rule.max_new_tokens)
            with products(dtype):
                loop = extend(params, *inputs[1:], loop, until)
            [ids], [length] = jax.device_get(loop.output)
            text = self._tokenizer.decode(ids[:length].tolist())
            if loop.is_done.all() or until == rule.max_new_tokens or (end and end in text):
                break
            yield _settled(text, end)
        yield _until(text, end)

    def _prompt(self, turns: list[str]) -> list[int]:
        text = self._format.prompt(*turns)
        return self._tokenizer.encode(text, add_special_tokens=False).ids


def _tokenizer_of(trained: Trained) -> Any:
    if trained.tokenizer_json is None:
        raise UsageError(
            f"{trained.directory} has no tokenizer that Textmill reads: put the model's "
            "tokenizer.json there"
        )
    return open_tokenizer(trained.tokenizer_json)


def _chat_of(trained: Trained) -> ChatFormat:
    if trained.chat is None:
        raise UsageError(
            f"{trained.directory} has no chat template: it is not a run on a dataset of "
            f"{flag('task', 'chat')}. Use generate, and write the whole prompt"
        )
    return trained.chat


def _until(text: str, end: str) -> str:
    return text.partition(end)[0] if end else text


def _settled(text: str, end: str) -> str:
    """The text that more tokens only add to: without the start of a character or of an end."""
    text = text.rstrip("\ufffd")
    starts = (end[:size] for size in range(len(end) - 1, 0, -1))
    return text.removesuffix(next(filter(text.endswith, starts), ""))


def _check_prompt(prompt: list[int], trained: Trained) -> None:
    """Refuses a prompt that the model cannot read or continue."""
    model = trained.config
    if not prompt:
        raise UsageError(
            "the prompt is empty, and this model has no start token: give at least a word (models "
            f"of a dataset built with {flag('bos', True)} can start alone)"
        )
    if max(prompt) >= model.vocab_size:
        raise UsageError(
            f"{trained.directory}: its tokenizer gives id {max(prompt)}, but the model has "
            f"{model.vocab_size:,} tokens: copy the model's own tokenizer there"
        )
    if len(prompt) >= model.max_positions:
        raise UsageError(
            f"the prompt has {len(prompt):,} tokens, but the model has "
            f"{model.max_positions:,} positions: give a shorter text"
        )


class _Loaded(NamedTuple):
    """A model on its device."""

    graph: nnx.GraphDef[DecoderForCausalLM]
    params: Params
    dtype: jnp.dtype


def _load(trained: Trained, compute: ComputeFlags) -> _Loaded:
    [(_, read)] = trained.weights
    dtype = compute_dtype(compute.precision)
    graph = graph_of(DecoderForCausalLM, trained.config, dtype)
    params = jax.tree.map(jnp.asarray, to_params(read(), trained.config))
    return _Loaded(graph, params, dtype)


def _rule(trained: Trained, flags: GenerationFlags, prompt: list[int]) -> "Sampling":
    """How to continue a prompt, in the positions that it leaves."""
    most = trained.config.max_positions
    new = min(flags.max_new_tokens, most - len(prompt))
    if new < flags.max_new_tokens:
        _note(f"the model has {most} positions: generating at most {new} tokens")
    return Sampling(new, flags.temperature, flags.top_k, flags.top_p, trained.eos_ids)


def _inputs(
    trained: Trained, prompt: list[int], width: int, rule: "Sampling", samples: int, seed: int
) -> "tuple[np.ndarray, np.ndarray, jax.Array]":
    """A prompt for each sample, padded to this width or to what the positions allow; see below."""
    prompts = np.zeros(
        (samples, min(width, trained.config.max_positions - rule.max_new_tokens)), np.int32
    )
    prompts[:, : len(prompt)] = prompt
    return prompts, np.full(samples, len(prompt), np.int32), row_keys(seed, samples)


def _generate(
    trained: Trained, compute: ComputeFlags, flags: GenerationFlags, prompt: list[int]
) -> "tuple[Generated, str]":
    """New tokens of every sample, on the host, and a line on the speed."""
    rule = _rule(trained, flags, prompt)
    width = -(-len(prompt) // WIDTH) * WIDTH
    model = _load(trained, compute)
    inputs = _inputs(trained, prompt, width, rule, flags.samples, compute.seed)

    began = time.perf_counter()
    program: Any = generator(model.graph, rule)
    with products(model.dtype):
        program = program.lower(model.params, *inputs).compile()
    compiled = time.perf_counter()
    output = jax.device_get(program(model.params, *inputs))
    seconds = time.perf_counter() - compiled
    tokens = int(output.lengths.sum())
    [(name, _)] = trained.weights
    place = f"{trained.directory}, step {name}" if trained.schema else str(trained.directory)
    return output, (
        f"{place}: {tokens} tokens in {seconds:.2f} s ({tokens / seconds:,.0f} a second), "
        f"after compiling for {compiled - began:.1f} s"
    )


def _note(text: str) -> None:
    say(text, sys.stderr)


class Sampling(NamedTuple):
    """How to choose the next token, as in `GenerationFlags`."""

    max_new_tokens: int = 64
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    eos_ids: tuple[int, ...] = ()  # each ends a text and is part of it


class Generated(NamedTuple):
    """New tokens."""

    ids: jax.Array  # int32 [B, T]; 0 after a row's end
    lengths: jax.Array  # int32 [B], new tokens of each row, eos included


class _Loop(NamedTuple):
    """The state of the loop."""

    step: jax.Array
    token: jax.Array  # int32 [B], the newest token, not yet in the caches
    is_done: jax.Array
    output: Generated
    caches: list[KVCache]


def allowed_logits(logits_BxV: jax.Array, rule: Sampling) -> jax.Array:
    """Logits at the temperature; -inf for tokens excluded by top-k, then by top-p."""
    logits_BxV = logits_BxV / rule.temperature
    if 0 < rule.top_k < logits_BxV.shape[-1]:
        least_Bx1 = jax.lax.top_k(logits_BxV, rule.top_k)[0][:, -1:]
        logits_BxV = jnp.where(logits_BxV < least_Bx1, -jnp.inf, logits_BxV)
    if rule.top_p < 1:
        falling_BxV = jnp.sort(logits_BxV, axis=-1, descending=True)
        share_BxV = jax.nn.softmax(falling_BxV, axis=-1)
        # A token stays if the likelier ones sum to less than P: the likeliest always does.
        stays_BxV = jnp.cumsum(share_BxV, axis=-1) - share_BxV < rule.top_p
        least_Bx1 = jnp.where(stays_BxV, falling_BxV, jnp.inf).min(axis=-1, keepdims=True)
        logits_BxV = jnp.where(logits_BxV < least_Bx1, -jnp.inf, logits_BxV)
    return logits_BxV


def choose(logits_BxV: jax.Array, keys_B: jax.Array, step: jax.Array, rule: Sampling) -> jax.Array:
    """The next token of each row, int32 [B]: the likeliest, or drawn with the row's key."""
    if not rule.temperature:
        return logits_BxV.argmax(axis=-1).astype(jnp.int32)
    keys_B = jax.vmap(jax.random.fold_in, (0, None))(keys_B, step)
    draws_B = jax.vmap(jax.random.categorical)(keys_B, allowed_logits(logits_BxV, rule))
    return draws_B.astype(jnp.int32)


def generator(
    graph: nnx.GraphDef[DecoderForCausalLM], rule: Sampling
) -> Callable[[Params, jax.Array, jax.Array, jax.Array], Generated]:
    """Returns the jitted function (params, prompts, lengths, keys) -> new tokens.

    `prompts` are int32 [B, P], padded at the right with any ids, `lengths` int32 [B] from 1 to P,
    `keys` a random key for each row (see `row_keys`), so that rows do not depend on each other.
    P + T may not exceed the model's `max_positions`.
    """
    begin, extend = _loop(graph, rule)

    def generate(
        params: Params, prompts_BxP: jax.Array, lengths_B: jax.Array, keys_B: jax.Array
    ) -> Generated:
        loop = begin(params, prompts_BxP, lengths_B, keys_B)
        return extend(params, lengths_B, keys_B, loop, rule.max_new_tokens).output

    return jax.jit(generate)


def _loop(
    graph: nnx.GraphDef[DecoderForCausalLM], rule: Sampling
) -> tuple[Callable[..., _Loop], Callable[..., _Loop]]:
    """Two functions, to begin a loop and to extend it until a number of tokens.

    (params, prompts, lengths, keys) -> a loop with the first token of each row, and
    (params, lengths, keys, loop, until) -> the loop with `until` tokens, or where all rows end.
    """

    def take(
        model: DecoderForCausalLM,
        loop: _Loop,
        x_BxLxE: jax.Array,
        last_B: jax.Array,
        keys_B: jax.Array,
    ) -> _Loop:
        """Chooses the next token of every row that has not ended."""
        x_Bx1xE = jnp.take_along_axis(x_BxLxE, last_B[:, None, None], axis=1)
        token_B = choose(model.logits(x_Bx1xE)[:, 0], keys_B, loop.step, rule)
        token_B = jnp.where(loop.is_done, 0, token_B)
        is_done = loop.is_done | jnp.isin(token_B, jnp.asarray(rule.eos_ids, jnp.int32))
        ids_BxT = loop.output.ids.at[:, loop.step].set(token_B)
        output = Generated(ids_BxT, loop.output.lengths + ~loop.is_done)
        return _Loop(loop.step + 1, token_B, is_done, output, loop.caches)

    def begin(
        params: Params, prompts_BxP: jax.Array, lengths_B: jax.Array, keys_B: jax.Array
    ) -> _Loop:
        model = nnx.merge(graph, params)
        (rows, width), new = prompts_BxP.shape, rule.max_new_tokens
        if width + new > model.config.max_positions:
            raise ValueError(f"{width} + {new} tokens for {model.config.max_positions} positions")
        context = Context(jnp.tile(jnp.arange(width), (rows, 1)))
        caches = [layer.empty_cache(rows, width + new) for layer in model.layers]
        x_BxPxE, caches = model.hidden(prompts_BxP, context, caches=caches)
        nothing_B = jnp.zeros(rows, jnp.int32)
        output = Generated(jnp.zeros((rows, new), jnp.int32), nothing_B)
        empty = _Loop(jnp.int32(0), nothing_B, jnp.zeros(rows, bool), output, caches)
        return take(model, empty, x_BxPxE, lengths_B - 1, keys_B)

    def extend(
        params: Params,
        lengths_B: jax.Array,
        keys_B: jax.Array,
        loop: _Loop,
        until: jax.Array | int,
    ) -> _Loop:
        model = nnx.merge(graph, params)

        def add_token(loop: _Loop) -> _Loop:
            context = Context((lengths_B + loop.step - 1)[:, None])
            x_Bx1xE, caches = model.hidden(loop.token[:, None], context, caches=loop.caches)
            last_B = jnp.zeros_like(lengths_B)
            return take(model, loop._replace(caches=caches), x_Bx1xE, last_B, keys_B)

        goes_on = lambda loop: (loop.step < until) & ~loop.is_done.all()  # noqa: E731
        return jax.lax.while_loop(goes_on, add_token, loop)

    return begin, extend


def row_keys(seed: int, rows: int) -> jax.Array:
    """A random key for each sample; that of row i does not depend on their number."""
    return jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(seed), jnp.arange(rows))
