"""The blocks of models: published ones, and those of a config.json."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from samples import KIB, MIB

import pyxfer
from pyxfer._blocks.layouts import MODELS
from pyxfer.errors import DocumentError, UsageError
from pyxfer.units import format_size

ROOT = Path(__file__).resolve().parents[2]

# Bytes of the keys and values of a token, in 2 bytes a number.
TOKEN_BYTES = {
    "llama-8b": 128 * KIB,
    "llama-70b": 320 * KIB,
    "deepseek-v3": 61 * 576 * 2,
    "qwen2.5-7b": 56 * KIB,
    "qwen2.5-14b": 192 * KIB,
    "qwen2.5-32b": 256 * KIB,
    "qwen2.5-72b": 320 * KIB,
    "qwen3-4b": 144 * KIB,
    "qwen3-8b": 144 * KIB,
    "qwen3-14b": 160 * KIB,
    "qwen3-32b": 256 * KIB,
    "qwen3-30b-a3b": 96 * KIB,
    "qwen3-235b-a22b": 188 * KIB,
}
LLAMA_8B: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "torch_dtype": "bfloat16",
}
DEEPSEEK_V3: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "kv_lora_rank": 512,
    "num_attention_heads": 128,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "qk_rope_head_dim": 64,
    "torch_dtype": "bfloat16",
}
QWEN3: dict[str, Any] = {
    "head_dim": 128,
    "hidden_size": 2560,
    "num_attention_heads": 32,
    "num_hidden_layers": 36,
    "num_key_value_heads": 8,
    "sliding_window": 4096,
    "use_sliding_window": False,
    "dtype": "bfloat16",
}


def written(tmp_path: Path, fields: object) -> Path:
    path = tmp_path / "config.json"
    path.write_text(fields if isinstance(fields, str) else json.dumps(fields))
    return path


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("split", ["none", "layer", "kv"])
def test_a_token_has_the_same_bytes_however_blocks_are_cut(model: str, split: Any) -> None:
    layout = pyxfer.kv_layout(model, split=split)
    assert layout.token_bytes == TOKEN_BYTES[model]
    assert layout.source.startswith("https://huggingface.co/")
    assert layout.source.endswith("/config.json")


def test_a_block_has_one_layer_all_layers_or_half_of_one() -> None:
    cut = {split: pyxfer.kv_layout("llama-8b", split=split) for split in ("none", "layer", "kv")}
    assert {split: (each.block_bytes, each.parts) for split, each in cut.items()} == {
        "none": (2 * MIB, 1),
        "layer": (64 * KIB, 32),
        "kv": (32 * KIB, 64),
    }


def test_latent_attention_has_one_vector_for_keys_and_values() -> None:
    layer, halves = (pyxfer.kv_layout("deepseek-v3", split=split) for split in ("layer", "kv"))
    assert (layer.block_bytes, layer.parts) == (halves.block_bytes, halves.parts) == (18 * KIB, 61)


def test_gpus_share_the_heads_and_each_keeps_one_at_least() -> None:
    sizes = [pyxfer.kv_layout("llama-70b", tensor_parallel=gpus).block_bytes for gpus in (1, 2, 8, 16)]
    assert sizes == [64 * KIB, 32 * KIB, 8 * KIB, 8 * KIB]
    assert pyxfer.kv_layout("deepseek-v3", tensor_parallel=8).block_bytes == 18 * KIB


def test_the_dtype_and_the_tokens_of_a_block_can_be_chosen() -> None:
    layout = pyxfer.kv_layout("llama-8b", kv_dtype="fp8", block_tokens=64)
    assert (layout.block_bytes, layout.token_bytes) == (128 * KIB, 64 * KIB)


def test_tokens_fill_whole_blocks() -> None:
    layout = pyxfer.kv_layout("llama-8b")
    assert [layout.blocks(tokens) for tokens in (1, 16, 17, 4096)] == [32, 32, 64, 8192]


def test_a_layout_says_what_a_block_is() -> None:
    layout = pyxfer.kv_layout("llama-8b", tensor_parallel=2)
    assert repr(layout) == "<KvLayout of llama-8b: 32 x 32 KiB for 16 tokens>"
    assert str(layout).startswith(
        "A block has 16 tokens of one layer of llama-8b in bfloat16 and one of 2 GPUs: 32 KiB"
    )


@pytest.mark.parametrize(
    ("fields", "model"),
    [
        (LLAMA_8B, "llama-8b"),
        (DEEPSEEK_V3, "deepseek-v3"),
        (QWEN3, "qwen3-4b"),
        ({"text_config": QWEN3}, "qwen3-4b"),
        ({**QWEN3, "layer_types": ["full_attention"] * 36}, "qwen3-4b"),
    ],
)
def test_a_config_gives_what_the_table_has(tmp_path: Path, fields: dict[str, Any], model: str) -> None:
    read, known = pyxfer.kv_layout(config=written(tmp_path, fields)), pyxfer.kv_layout(model)
    assert (read.block_bytes, read.parts, read.kv_dtype) == (known.block_bytes, known.parts, known.kv_dtype)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"_name_or_path": "org/own", "model_type": "own"}, "org/own"),
        ({"model_type": "own"}, "own"),
        ({"model_type": None}, "the model"),
        ({"_name_or_path": "a\nb" + 90 * "c"}, "a b" + 77 * "c"),
    ],
)
def test_a_config_names_its_model(tmp_path: Path, fields: dict[str, Any], name: str) -> None:
    own = {**lacking("_name_or_path", lacking("model_type")), **fields}
    assert pyxfer.kv_layout(config=written(tmp_path, own)).model == name


def test_a_model_without_grouped_heads_has_all_of_them(tmp_path: Path) -> None:
    fields = {name: value for name, value in LLAMA_8B.items() if name != "num_key_value_heads"}
    assert pyxfer.kv_layout(config=written(tmp_path, fields)).block_bytes == 4 * 64 * KIB


def lacking(name: str, fields: dict[str, Any] = LLAMA_8B) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key != name}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (lacking("num_hidden_layers"), "has no num_hidden_layers"),
        (lacking("hidden_size"), "has no hidden_size"),
        (lacking("qk_rope_head_dim", DEEPSEEK_V3), "has no qk_rope_head_dim"),
        (lacking("torch_dtype"), "has no torch_dtype"),
        ({**LLAMA_8B, "torch_dtype": "int3"}, "has the torch_dtype 'int3'"),
        ({**LLAMA_8B, "torch_dtype": ["x"]}, "has the torch_dtype"),
        ({**LLAMA_8B, "num_hidden_layers": "32"}, "num_hidden_layers '32' is not a whole number"),
        ({**LLAMA_8B, "num_hidden_layers": 0}, "num_hidden_layers 0"),
        ({**LLAMA_8B, "num_attention_heads": 5000}, "has no head_dim"),
        ({**LLAMA_8B, "layer_types": ["full_attention", "sliding_attention"]}, "has layer_types"),
        ({**LLAMA_8B, "sliding_window": 4096}, "has sliding_window"),
        ({**DEEPSEEK_V3, "index_topk": 2048}, "has index_topk"),
        ({"text_config": 3}, "has no num_hidden_layers"),
        ([], "is not an object"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), "is not JSON"),
    ],
)
def test_a_config_that_lacks_something_is_refused_in_one_sentence(tmp_path: Path, fields: object, said: str) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        pyxfer.kv_layout(config=written(tmp_path, fields))
    assert "config.json" in str(raised.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"There is no file .*none\.json"):
        pyxfer.kv_layout(config=tmp_path / "none.json")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "give one of model and config"),
        ({"model": "llama-8b", "config": "x"}, "give one of model and config"),
        ({"model": "llama-9b"}, "did you mean llama-8b"),
        ({"model": "llama-8b", "split": "head"}, "split 'head' is unknown"),
        ({"model": "llama-8b", "kv_dtype": "int4"}, "kv_dtype 'int4' is unknown"),
        ({"model": "llama-8b", "block_tokens": 0}, "block_tokens 0"),
        ({"model": "llama-8b", "tensor_parallel": 3}, "8 heads of keys and values cannot be shared by tensor_parallel"),
        ({"model": "llama-8b", "tensor_parallel": 0}, "tensor_parallel 0"),
        ({"model": "llama-8b", "tensor_parallel": 1.5}, "tensor_parallel 1.5"),
    ],
)
def test_an_invalid_layout_is_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        pyxfer.kv_layout(**arguments)


PAGE = ROOT / "docs" / "plans.md"


def test_the_documentation_has_the_blocks_of_every_model() -> None:
    if not PAGE.exists():
        pytest.skip("the documentation is not beside the tests")
    (table,) = re.findall(r"<!-- layouts -->\n(.*?)<!--", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    rows = []
    for name, model in MODELS.items():
        layer, whole = pyxfer.kv_layout(name), pyxfer.kv_layout(name, split="none")
        sizes = [format_size(size) for size in (round(layer.token_bytes), layer.block_bytes, whole.block_bytes)]
        rows.append(f"| `{name}` | `{model.repository}` | {' | '.join(sizes)} |")
    assert table.splitlines()[2:] == rows


@pytest.mark.parametrize("tokens", [0, -3, 1.5, "4096"])
def test_a_number_of_tokens_is_whole_and_above_zero(tokens: Any) -> None:
    with pytest.raises(UsageError, match="tokens"):
        pyxfer.kv_layout("llama-8b").blocks(tokens)
