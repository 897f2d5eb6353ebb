"""The document of a plan, whether moving blocks to host memory and back pays; and the blocks of models."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import msgspec

from pyxfer._document.blocks import BlockMemory, BlockMethod
from pyxfer._document.checks import AtLeastOne, Positive, Problems
from pyxfer._document.intervals import MIN_TRIALS
from pyxfer._document.machines import Fact, Moment, SavedDocument
from pyxfer._document.printing import ShortRepr
from pyxfer._document.runs import BlockOrder, OneWay
from pyxfer.units import format_percent, format_seconds, format_size, whole_of

_MAX_TOKENS = 1 << 50
Split = Literal["none", "layer", "kv"]
"""A block has all layers of its tokens, one layer, or the keys or the values of one layer."""
OffloadVerdict = Literal["moving pays", "computing pays", "too close to say"]


class KvLayout(ShortRepr, msgspec.Struct, frozen=True):
    """The blocks in which a server keeps the keys and values of a model on one GPU.

    `block_bytes`: the size of a block. `parts`: how many blocks have the same `block_tokens` tokens. `source`: the
    config.json that it follows from.
    """

    model: str
    source: str
    block_bytes: int
    parts: int
    block_tokens: int
    split: Split
    layers: int
    tensor_parallel: int
    kv_dtype: str

    @property
    def token_bytes(self) -> float:
        """Bytes of one token on one GPU."""
        return self.block_bytes * self.parts / self.block_tokens

    def blocks(self, tokens: int) -> int:
        """The number of blocks that hold these tokens."""
        tokens = whole_of(tokens, "tokens", 1, _MAX_TOKENS, "4096")
        return -(-tokens // self.block_tokens) * self.parts

    def _summary(self) -> str:
        return f"of {self.model}: {self.parts} x {format_size(self.block_bytes)} for {self.block_tokens} tokens"

    def __str__(self) -> str:
        """What a block of it is, as a sentence."""
        of_layers = {
            "none": f"all {self.layers} layers",
            "layer": "one layer",
            "kv": "the keys or the values of one layer",
        }
        parallel = "" if self.tensor_parallel == 1 else f" and one of {self.tensor_parallel} GPUs"
        return (
            f"A block has {self.block_tokens} tokens of {of_layers[self.split]} of {self.model} in {self.kv_dtype}"
            f"{parallel}: {format_size(self.block_bytes)}, {format_size(round(self.token_bytes))} a token."
        )


class Move(msgspec.Struct, frozen=True):
    """The predicted time of one way with its interval, and the method that is fastest for it."""

    direction: OneWay
    method: BlockMethod
    seconds: Positive
    low_s: Positive
    high_s: Positive
    gbps: Positive


class BreakEven(msgspec.Struct, frozen=True):
    """From how many blocks on moving pays, with its interval, and the tokens in them.

    `least`, `most`: the numbers of blocks that were compared; at either end it may also be beyond. `high`: null if at
    the slow end of the interval not even `most` pay.
    """

    blocks: int
    low: int
    high: int | None
    tokens: int | None
    least: int
    most: int


Origin = Literal["given", "kept", "store"]
"""The run was given, its times were kept on this host for `copy_blocks`, or it is from the store."""


class PlanSource(msgspec.Struct, frozen=True):
    """What a plan rests on: a device, its host, and when and by what it was measured."""

    device: str
    host: str
    taken_at: Moment
    made_by: Literal["run", "calibration"]
    origin: Origin


class OffloadPlan(ShortRepr, SavedDocument, frozen=True):
    """Whether moving blocks to host memory and back pays against computing them again, on one host.

    `seconds`: of all `moves` with their `share` of the link, from `low_s` to `high_s`. `compute_s`: to compute all
    blocks again. `times_measured`: how many of the largest measured moves such a move consists of, or 1. `trials`: the
    fewest of a cell that the times follow from; with less than six the interval is too narrow.
    """

    DERIVED_BY: ClassVar[str] = "pyxfer._blocks.offload:derive_plan"

    kind: Literal["plan"]
    verdict: OffloadVerdict
    block_bytes: AtLeastOne
    blocks: AtLeastOne
    tokens: AtLeastOne | None
    compute_s: Positive
    seconds: Positive
    low_s: Positive
    high_s: Positive
    moves: tuple[Move, ...]
    break_even: Fact[BreakEven]
    memory: BlockMemory
    order: BlockOrder
    share: Positive
    times_measured: Positive
    trials: AtLeastOne
    source: PlanSource
    layout: KvLayout | None = None
    schema_version: int = 1

    @property
    def moved_bytes(self) -> int:
        """Bytes of all blocks, one way."""
        return self.block_bytes * self.blocks

    @property
    def break_even_tokens_per_s(self) -> float | None:
        """The tokens that have to be computed in a second to be as fast as moving; None if they are not known."""
        return None if self.tokens is None else self.tokens / self.seconds

    def _summary(self) -> str:
        return f"{self.verdict}: {format_seconds(self.seconds)} to move, {format_seconds(self.compute_s)} to compute"

    def __str__(self) -> str:
        """The plan in sentences."""
        return " ".join(self.sentences())

    def sentences(self) -> tuple[str, ...]:
        """The verdict, where both ways are equal, what keeping means, and what the figures rest on."""
        layout = () if self.layout is None else (str(self.layout),)
        return (*layout, self.verdict_sentence(), *self._equal(), self._keeping(), *self._grounds())

    def verdict_sentence(self) -> str:
        """What pays, with both times."""
        what = "Storing and loading" if len(self.moves) > 1 else "Loading"
        of_tokens = "" if self.tokens is None else f", {counted(self.tokens, 'token')}"
        verdict = {
            "moving pays": "Moving pays",
            "computing pays": "Computing pays",
            "too close to say": "It is too close to say which pays",
        }[self.verdict]
        return (
            f"{verdict}: {what.lower()} {counted(self.blocks)} of {format_size(self.block_bytes)} "
            f"({format_size(self.moved_bytes)}{of_tokens}) takes {self._interval()}, and computing them "
            f"{format_seconds(self.compute_s)}."
        )

    def _interval(self) -> str:
        low, high = format_seconds(self.low_s), format_seconds(self.high_s)
        return f"{format_seconds(self.seconds)} ({low} to {high})"

    def _equal(self) -> tuple[str, ...]:
        rate = self.break_even_tokens_per_s
        equal = (
            f"Computing is as fast if it takes {format_seconds(self.seconds)}."
            if rate is None
            else f"Computing is as fast at {_rounded(rate)} tokens a second."
        )
        even = self.break_even.value
        if even is None:
            return equal, f"At this rate of computing, {self.break_even.reason}."
        tokens = "" if even.tokens is None else f" ({counted(even.tokens, 'token')})"
        first = f"At this rate of computing, moving pays from {_edge(even)}{counted(even.blocks)}{tokens} on"
        if (even.low, even.high) == (even.blocks, even.blocks):
            return equal, f"{first}."
        worst = f"not even from {even.most:,}" if even.high is None else f"from {even.high:,}"
        return equal, f"{first}, at best from {even.low:,} and at worst {worst}."

    def _keeping(self) -> str:
        kept = f"Keeping the blocks on the GPU costs no time, but {format_size(self.moved_bytes)} of its memory"
        is_whole = len(self.moves) > 1
        freed = f": moving frees that in pauses longer than {format_seconds(self.seconds)}"
        return f"{kept}{freed if is_whole else ''}."

    def _grounds(self) -> tuple[str, ...]:
        found = []
        if self.share < 1:
            found.append(
                f"The moves are taken to have {format_percent(self.share)} of the link: the time that their bytes need "
                "on it grows, and what a call costs does not."
            )
        if self.times_measured > 1:
            found.append(
                f"The largest such move that was measured is smaller by a factor of {self.times_measured:.3g}: the "
                "time is that of several of these."
            )
        if self.trials < MIN_TRIALS:
            again = "with a longer --budget" if self.source.made_by == "run" else "with pyxfer blocks"
            found.append(
                f"The times rest on cells of as few as {counted(self.trials, 'trial')}, and an interval needs "
                f"{MIN_TRIALS}, so this one is too narrow: measure again {again}."
            )
        return tuple(found)


def plan_problems(plan: OffloadPlan) -> Problems:
    """What `pyxfer plan` never writes: moves that are not one for each way, and an interval without its figure."""
    if [move.direction for move in plan.moves] not in (["d2h", "h2d"], ["h2d"]):
        yield "moves", "are not those of storing and loading"
    even = plan.break_even.value
    if even is not None:
        most = even.most if even.high is None else even.high
        if not 1 <= even.least <= even.low <= even.blocks <= most <= even.most:
            yield "break_even", "is not within its interval and the numbers of blocks that were compared"


def _edge(even: BreakEven) -> str:
    """Fewer may pay too if the fewest that were measured do; of one block there are no fewer."""
    if even.blocks == even.least > 1:
        return "at most "
    return "at least " if even.blocks == even.most > 1 else ""


def counted(number: int, what: str = "block") -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _rounded(rate: float) -> str:
    """A number with three significant digits."""
    digits = max(0, 2 - math.floor(math.log10(rate))) if rate > 0 else 0
    return f"{float(f'{rate:.3g}'):,.{digits}f}"
