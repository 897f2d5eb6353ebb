"""The blocks in which inference servers keep the keys and values of a model, from its published config.json."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

from pyxfer._document.files import read_whole
from pyxfer._document.offloads import KvLayout, Split
from pyxfer.errors import UsageError
from pyxfer.units import whole_of, word_of

BLOCK_TOKENS = 16
"""Tokens of a block by default in vLLM."""
DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "fp8": 1}
KV_DTYPES = ("auto", *DTYPE_BYTES)
SPLITS: tuple[Split, ...] = get_args(Split)
_DTYPE_ALIASES = {"float8_e4m3fn": "fp8", "float8_e5m2": "fp8"}
_MAX_COUNT = 1 << 20


class _Attention(NamedTuple):
    """What a token leaves in each layer.

    `latent`: the width of one vector for all heads (multi-head latent attention), or 0. `heads`: the heads of keys and
    of values, each of `head_dim` numbers.
    """

    layers: int
    heads: int
    head_dim: int
    latent: int = 0


class _Model(NamedTuple):
    """A published model: its repository on huggingface.co, and what its config.json has."""

    repository: str
    attention: _Attention
    dtype: str = "bfloat16"


# From `num_hidden_layers`, `num_key_value_heads` and `head_dim` (or `hidden_size` over `num_attention_heads`), and of
# DeepSeek from `kv_lora_rank` + `qk_rope_head_dim`, of https://huggingface.co/REPOSITORY/blob/main/config.json.
MODELS: Mapping[str, _Model] = {
    "llama-8b": _Model("meta-llama/Llama-3.1-8B", _Attention(32, 8, 128)),
    "llama-70b": _Model("meta-llama/Llama-3.1-70B", _Attention(80, 8, 128)),
    "deepseek-v3": _Model("deepseek-ai/DeepSeek-V3", _Attention(61, 0, 0, latent=512 + 64)),
    "qwen2.5-7b": _Model("Qwen/Qwen2.5-7B", _Attention(28, 4, 128)),
    "qwen2.5-14b": _Model("Qwen/Qwen2.5-14B", _Attention(48, 8, 128)),
    "qwen2.5-32b": _Model("Qwen/Qwen2.5-32B", _Attention(64, 8, 128)),
    "qwen2.5-72b": _Model("Qwen/Qwen2.5-72B", _Attention(80, 8, 128)),
    "qwen3-4b": _Model("Qwen/Qwen3-4B", _Attention(36, 8, 128)),
    "qwen3-8b": _Model("Qwen/Qwen3-8B", _Attention(36, 8, 128)),
    "qwen3-14b": _Model("Qwen/Qwen3-14B", _Attention(40, 8, 128)),
    "qwen3-32b": _Model("Qwen/Qwen3-32B", _Attention(64, 8, 128)),
    "qwen3-30b-a3b": _Model("Qwen/Qwen3-30B-A3B", _Attention(48, 4, 128)),
    "qwen3-235b-a22b": _Model("Qwen/Qwen3-235B-A22B", _Attention(94, 4, 128)),
}
# Fields of models whose layers do not all keep the keys and values of every token.
_OTHER_ATTENTION = (
    "attention_chunk_size",
    "attn_layer_period",
    "attn_type_list",
    "block_configs",
    "block_types",
    "compress_ratios",
    "cross_attention_layers",
    "full_attention_interval",
    "hybrid_layer_ids",
    "hybrid_layer_pattern",
    "hybrid_override_pattern",
    "index_topk",
    "layers_block_type",
    "linear_attn_config",
    "num_kv_shared_layers",
)
# How older models say that heads share their keys and values.
_OTHER_HEADS = ("multi_query", "num_kv_heads")


def kv_layout(
    model: str | None = None,
    *,
    config: str | os.PathLike[str] | None = None,
    block_tokens: int = BLOCK_TOKENS,
    split: Split = "layer",
    tensor_parallel: int = 1,
    kv_dtype: str = "auto",
) -> KvLayout:
    """Return the blocks in which a server keeps the keys and values of a model on one GPU.

    Args:
        model: A known model, such as "llama-8b"; an unknown name gives the list.
        config: A config.json of Hugging Face, for another model.
        block_tokens: Tokens of a block.
        split: "none" (a block has all layers), "layer", or "kv" (keys and values of each layer apart).
        tensor_parallel: Number of GPUs that share the heads. Latent attention is kept whole by each of them.
        kv_dtype: "bfloat16", "float16", "float32", "fp8", or "auto": that of the model.

    Raises:
        UsageError: an argument is invalid, or the file has not what it takes; the text says what is missing.

    """
    block_tokens = whole_of(block_tokens, "block_tokens", 1, _MAX_COUNT, "16")
    tensor_parallel = whole_of(tensor_parallel, "tensor_parallel", 1, _MAX_COUNT, "8")
    split = word_of(split, SPLITS, "split")
    dtype = word_of(kv_dtype, KV_DTYPES, "kv_dtype")
    if model is not None and config is None:
        name = word_of(model, MODELS, "model")
        repository, attention, own_dtype = MODELS[name]
        source = f"https://huggingface.co/{repository}/blob/main/config.json"
    elif config is not None and model is None:
        source = os.fspath(config)
        name, attention, own_dtype = _read_config(source, dtype)
    else:
        raise UsageError("A layout is that of a model or of a config.json: give one of model and config.")
    of_kv_dtype = own_dtype if dtype == "auto" else dtype
    block_bytes, parts = _cut(attention, split, tensor_parallel)
    return KvLayout(
        model=name,
        source=source,
        block_bytes=block_bytes * block_tokens * DTYPE_BYTES[of_kv_dtype],
        parts=parts,
        block_tokens=block_tokens,
        split=split,
        layers=attention.layers,
        tensor_parallel=tensor_parallel,
        kv_dtype=of_kv_dtype,
    )


def _cut(attention: _Attention, split: Split, gpus: int) -> tuple[int, int]:
    """Numbers of one token in a block, and the blocks of the same tokens."""
    if attention.latent:
        heads, halves, width = 1, 1, attention.latent
    else:
        if attention.heads % gpus and gpus % attention.heads:
            raise UsageError(
                f"{attention.heads} heads of keys and values cannot be shared by tensor_parallel {gpus}: give a "
                "divisor or a multiple of their number."
            )
        # With more GPUs than heads each keeps one head, which others have too.
        heads, halves, width = max(1, attention.heads // gpus), 2, attention.head_dim
    parts = {"none": 1, "layer": attention.layers, "kv": attention.layers * halves}[split]
    return attention.layers * heads * halves * width // parts, parts


# --- config.json -----------------------------------------------------------------------------------------------------


def _read_config(path: str, dtype: str) -> tuple[str, _Attention, str]:
    shown = f"config {path!r:.200}"
    whole = _parsed(path, shown)
    of_text = whole.get("text_config")  # models that also see have a config for each part
    text = of_text if isinstance(of_text, dict) else whole
    config = _Config(text, shown)
    config.refuse_other_attention()
    own = next((each[key] for each in (text, whole) for key in ("torch_dtype", "dtype") if each.get(key)), None)
    own_dtype = _DTYPE_ALIASES.get(str(own), str(own))
    attention = config.attention()
    if dtype == "auto" and own_dtype not in DTYPE_BYTES:
        missing = "has no torch_dtype" if own is None else f"has the torch_dtype {own!r:.40}"
        raise UsageError(f"{shown} {missing}: give kv_dtype, one of {', '.join(DTYPE_BYTES)}.")
    named = whole.get("_name_or_path") or text.get("model_type") or "the model"
    name = "".join(letter if letter.isprintable() else " " for letter in str(named)[:80])
    return name, attention, own_dtype


def _parsed(path: str, shown: str) -> dict[str, Any]:
    data = read_whole(path)
    try:
        whole = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{shown} is not JSON: give the config.json of a model.") from error
    if not isinstance(whole, dict):
        raise UsageError(f"{shown} is not an object: give the config.json of a model.")
    return whole


class _Config:
    """The fields of a config.json, each checked when it is read."""

    def __init__(self, fields: Mapping[str, Any], shown: str) -> None:
        self._fields, self._shown = fields, shown

    def attention(self) -> _Attention:
        layers = self._number("num_hidden_layers")
        if self._fields.get("kv_lora_rank") is not None:
            return _Attention(layers, 0, 0, self._number("kv_lora_rank") + self._number("qk_rope_head_dim"))
        if self._fields.get("num_key_value_heads") is not None:
            heads = self._number("num_key_value_heads")
        else:  # each head has its own
            heads = self._number("num_attention_heads")
        if self._fields.get("head_dim") is not None:
            return _Attention(layers, heads, self._number("head_dim"))
        width, all_heads = self._number("hidden_size"), self._number("num_attention_heads")
        if width % all_heads:
            raise UsageError(
                f"{self._shown} has no head_dim, and its hidden_size is not a multiple of its heads: give it."
            )
        return _Attention(layers, heads, width // all_heads)

    def refuse_other_attention(self) -> None:
        fields = self._fields
        kinds = fields.get("layer_types")
        is_mixed = isinstance(kinds, list) and any(kind != "full_attention" for kind in kinds)
        has_window = fields.get("sliding_window") is not None and fields.get("use_sliding_window") is not False
        found = [name for name in _OTHER_ATTENTION if fields.get(name) is not None]
        found += ["layer_types"] * is_mixed + ["sliding_window"] * has_window
        if found:
            raise UsageError(
                f"{self._shown} has {found[0]}, so not all of its layers keep every token: give block_bytes and blocks "
                "of your server instead."
            )
        others = [name for name in _OTHER_HEADS if fields.get(name) is not None]
        if others and fields.get("num_key_value_heads") is None:
            raise UsageError(
                f"{self._shown} says by {others[0]} which heads share keys and values, which is not known here: give "
                "block_bytes and blocks of your server instead."
            )

    def _number(self, name: str) -> int:
        value = self._fields.get(name)
        if value is None:
            raise UsageError(f"{self._shown} has no {name}: give the config.json of a model with attention.")
        return whole_of(value, f"{self._shown}: {name}", 1, _MAX_COUNT, "the config.json as it was published")
