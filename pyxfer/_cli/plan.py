"""The verb `plan`: whether moving blocks to host memory and back pays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import pyxfer
from pyxfer import units
from pyxfer._cli import options as opt
from pyxfer._cli import output
from pyxfer.errors import UsageError

if TYPE_CHECKING:
    from pyxfer._document.offloads import KvLayout, OffloadPlan

BlockBytes = Annotated[str | None, opt.option("--block-bytes", "SIZE", "Size of a block, such as 16KiB.")]
Blocks = Annotated[int | None, opt.option("--blocks", "COUNT", "Number of blocks that are moved at once.", min=1)]
Compute = Annotated[str | None, opt.option("--compute", "TIME", "Time to compute all blocks again, such as 0.4s.")]
_MODEL = "Take the blocks of a model, such as llama-8b; with --tokens."
Model = Annotated[str | None, opt.option("--model", "NAME", _MODEL)]
_CONFIG = "Take the blocks of another model from its config.json; with --tokens."
Config = Annotated[str | None, opt.option("--config", "FILE", _CONFIG)]
Tokens = Annotated[int | None, opt.option("--tokens", "COUNT", "Tokens in the blocks, such as 4096.", min=1)]
_PREFILL = "Rate of computing tokens, such as 12000tok/s, in place of --compute."
Prefill = Annotated[str | None, opt.option("--prefill", "RATE", _PREFILL)]
_BLOCK_TOKENS = "Tokens of a block of the model; 16 by default."
BlockTokens = Annotated[int | None, opt.option("--block-tokens", "COUNT", _BLOCK_TOKENS, min=1)]
_SPLIT = "Part of its tokens that a block has: none (all layers), layer (default), or kv (keys and values apart)."
Split = Annotated[str | None, opt.option("--split", "WORD", _SPLIT)]
_TENSOR_PARALLEL = "Number of GPUs that share the heads of the model; 1 by default."
TensorParallel = Annotated[int | None, opt.option("--tensor-parallel", "COUNT", _TENSOR_PARALLEL, min=1)]
_KV_DTYPE = "bfloat16, float16, float32, fp8, or auto (that of the model; default)."
KvDtype = Annotated[str | None, opt.option("--kv-dtype", "WORD", _KV_DTYPE)]
_RUN = "A run of pyxfer blocks; by default what was kept or stored on this host."
SavedRun = Annotated[str | None, opt.option("--run", "FILE", _RUN)]
# A file's `order` and `memory` are lists of what to measure, and those of a plan are one word: they have other names.
_ORDER = "Where the blocks are: random, runs (of 16 neighbours) or ordered (every second)."
Order = Annotated[str, opt.option("--order", "WORD", _ORDER)]
Memory = Annotated[str, opt.option("--memory", "WORD", "Host memory of the blocks: pinned or pageable.")]
_SHARE = "Share of the link that the moves get, such as 50%; all of it by default."
Share = Annotated[str | None, opt.option("--share", "SHARE", _SHARE)]
LoadOnly = Annotated[bool, opt.flag("--load-only/--no-load-only", "Leave out the time of storing.")]


def plan(
    *,
    block_bytes: BlockBytes = None,
    blocks: Blocks = None,
    compute: Compute = None,
    model: Model = None,
    config: Config = None,
    tokens: Tokens = None,
    prefill: Prefill = None,
    block_tokens: BlockTokens = None,
    split: Split = None,
    tensor_parallel: TensorParallel = None,
    kv_dtype: KvDtype = None,
    run: SavedRun = None,
    one_order: Order = "random",
    one_memory: Memory = "pinned",
    share: Share = None,
    load_only: LoadOnly = False,
    export_json: opt.WholeJson = None,
    store: opt.Store = None,
) -> None:
    """Predict whether offloading blocks to the host pays.

    Compares moving blocks of a KV cache, experts or embeddings to host memory and back with computing them again, by
    the times that pyxfer blocks has measured on this host, and says from how many blocks or tokens on moving pays.
    Measures nothing. The verdict does not change the exit code.
    """
    from pyxfer._blocks.plans import MEMORIES
    from pyxfer._document.runs import ORDERS

    exports: output.Exports[OffloadPlan] = output.Exports((export_json, output.document_json))
    if run is not None and store is not None:
        raise UsageError("--run and --store exclude each other: give one of them.")
    options = {"split": split, "kv_dtype": kv_dtype, "block_tokens": block_tokens, "tensor_parallel": tensor_parallel}
    layout = _layout(model, config, options)
    _check_given(layout, tokens, (block_bytes, blocks), (compute, prefill))
    found = pyxfer.plan_offload(
        None if block_bytes is None else units.size_of(block_bytes, "--block-bytes"),
        blocks,
        None if compute is None else units.seconds_of(compute, "--compute"),
        layout=layout,
        tokens=tokens,
        prefill=None if prefill is None else units.rate_of(prefill, "--prefill"),
        run=run,
        order=units.word_of(one_order, ORDERS, "--order"),
        memory=units.word_of(one_memory, MEMORIES, "--memory"),
        share=1.0 if share is None else units.share_of(share, "--share"),
        load_only=load_only,
        store=store,
    )
    exports.deliver(found)


def _layout(model: str | None, config: str | None, options: Mapping[str, str | int | None]) -> KvLayout | None:
    from pyxfer._blocks.layouts import KV_DTYPES, MODELS, SPLITS

    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if model is None and config is None:
        if given:
            option = next(iter(given)).replace("_", "-")
            raise UsageError(f"--{option} is of a model's blocks: give --model or --config too.")
        return None
    if model is not None and config is not None:
        raise UsageError("--model and --config exclude each other: give one of them.")
    for name, words in (("split", SPLITS), ("kv_dtype", KV_DTYPES)):
        if name in given:
            given[name] = units.word_of(given[name], words, f"--{name.replace('_', '-')}")
    return pyxfer.kv_layout(None if model is None else units.word_of(model, MODELS, "--model"), config=config, **given)


def _check_given(
    layout: KvLayout | None,
    tokens: int | None,
    blocks: tuple[str | None, int | None],
    computing: tuple[str | None, str | None],
) -> None:
    """Refuse too few or too many options, as `plan_offload` would with the names of its arguments."""
    if computing.count(None) != 1:
        raise UsageError("A plan compares with the time of computing: give --compute or --prefill, one of them.")
    if layout is None and None in blocks:
        raise UsageError("A plan needs --block-bytes and --blocks, or --model and --tokens: give two of them.")
    if layout is not None and blocks != (None, None):
        raise UsageError("A model has its own blocks: leave out --block-bytes and --blocks.")
    if tokens is None and (layout is not None or computing[1] is not None):
        raise UsageError("The number of tokens is missing: give --tokens, such as 4096.")
