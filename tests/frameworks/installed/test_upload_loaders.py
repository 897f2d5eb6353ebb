"""Prefetching from the loaders of installed frameworks on the CPU, and the loops of bench/never_slower.py."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import never_slower_loops
import numpy as np
import pytest
from never_slower_peers import PEERS
from numpy.typing import NDArray
from upload.feeding import threads

from pyxfer._document.runs import FrameworkName
from pyxfer._upload.arrays import source_of
from pyxfer._upload.uploader import Uploader
from pyxfer.errors import UsageError
from pyxfer.native import Engine

pytestmark = pytest.mark.filterwarnings("ignore")
COUNT, BATCH = 24, 4


@pytest.fixture
def up(engine: Engine) -> Iterator[Uploader]:
    assert engine.RUNTIME == "host"
    with Uploader("host", threads=2, chunk_bytes=4096, slots=4) as made:
        yield made
    for thread in threads():
        thread.join()


class Images:
    """A dataset of torch, in whose worker processes `trouble` happens."""

    def __init__(self, trouble: str = "") -> None:
        self.trouble = trouble

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], int]:
        if index == COUNT // 2 and self.trouble == "raise":
            raise ValueError("in the dataset")
        if index == COUNT // 2 and self.trouble == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return np.full((64, 65), index, np.uint8), index


def loader_of(torch: Any, images: Images, **options: Any) -> Any:
    return torch.utils.data.DataLoader(images, batch_size=BATCH, **options)


def labels_of(up: Uploader, loader: Any, count: int = COUNT) -> list[int]:
    found: list[int] = []
    for images, labels in up.prefetch(loader, "torch"):
        assert images.shape[1:] == (64, 65)
        assert (images == labels[:, None, None]).all()
        found.extend(labels.tolist())
        if len(found) >= count:
            break
    return found


@pytest.mark.parametrize(
    "options",
    [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}, {"num_workers": 1, "pin_memory": True}],
    ids=" ".join,
)
def test_every_epoch_of_a_torch_loader_is_complete(up: Uploader, torch: Any, options: dict[str, Any]) -> None:
    loader = loader_of(torch, Images(), **options)
    assert [labels_of(up, loader) for _ in range(3)] == [list(range(COUNT))] * 3


def test_leaving_early_does_not_disturb_the_next_epoch_of_kept_workers(up: Uploader, torch: Any) -> None:
    loader = loader_of(torch, Images(), num_workers=2, persistent_workers=True)
    for _ in range(5):
        assert labels_of(up, loader, 1) == list(range(BATCH))
    assert labels_of(up, loader) == list(range(COUNT))


def test_an_error_in_a_worker_of_torch_comes_out(up: Uploader, torch: Any) -> None:
    with pytest.raises(ValueError, match="in the dataset"):
        labels_of(up, loader_of(torch, Images("raise"), num_workers=2))
    assert labels_of(up, loader_of(torch, Images(), num_workers=2)) == list(range(COUNT))


def test_the_death_of_a_worker_of_torch_raises(up: Uploader, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # torch notices it where batches are drawn, and by a signal, whose handler would raise in any line of this thread.
    monkeypatch.setattr(torch.utils.data._utils.signal_handling, "_error_if_any_worker_fails", lambda: None)
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.1)
    with pytest.raises((RuntimeError, OSError)):
        labels_of(up, loader_of(torch, Images("die"), num_workers=1))


@pytest.fixture
def numbers() -> NDArray[np.float32]:
    return np.arange(COUNT * 5, dtype=np.float32).reshape(COUNT, 5)


def test_a_dataset_of_tensorflow_is_sent_as_it_is(up: Uploader, tensorflow: Any, numbers: NDArray[np.float32]) -> None:
    dataset = tensorflow.data.Dataset.from_tensor_slices({"x": numbers, "y": np.arange(COUNT)}).batch(7)
    batches = list(up.prefetch(dataset, "tensorflow"))
    assert [tuple(batch["x"].shape) for batch in batches] == [(7, 5), (7, 5), (7, 5), (3, 5)]
    assert np.array_equal(np.concatenate([memoryview(batch["x"]) for batch in batches]), numbers)
    assert np.array_equal(np.concatenate([memoryview(batch["y"]) for batch in batches]), np.arange(COUNT))


def test_a_tensor_of_tensorflow_is_read_where_it_is(tensorflow: Any, numbers: NDArray[np.float32]) -> None:
    tensor = tensorflow.constant(numbers)
    assert source_of(tensor).address == np.asarray(memoryview(tensor)).__array_interface__["data"][0]


def test_a_dataset_that_ends_on_a_device_is_drawn_on_the_host(
    up: Uploader, tensorflow: Any, numbers: NDArray[np.float32]
) -> None:
    data = tensorflow.data
    drawn_in: list[threading.Thread] = []

    def source() -> Iterator[NDArray[np.float32]]:
        drawn_in.append(threading.current_thread())
        yield from numbers

    spec = tensorflow.TensorSpec((5,), tensorflow.float32)
    host = data.Dataset.from_generator(source, output_signature=spec).batch(BATCH)
    options = data.Options()
    options.deterministic = True
    to_device = [
        host.apply(data.experimental.prefetch_to_device("/cpu:0")),
        host.apply(data.experimental.copy_to_device("/cpu:0")),
        host.apply(data.experimental.copy_to_device("/cpu:0")).prefetch(2).with_options(options),
        # Without a GPU it could not be drawn from.
        host.apply(data.experimental.prefetch_to_device("/gpu:0")),
    ]
    for dataset in to_device:
        batches = list(up.prefetch(dataset, "tensorflow"))
        assert np.array_equal(np.concatenate([memoryview(batch) for batch in batches]), numbers)
    assert len(drawn_in) == len(to_device)


def test_an_error_in_a_dataset_of_tensorflow_comes_out(up: Uploader, tensorflow: Any) -> None:
    def source() -> Iterator[int]:
        yield from range(3)
        raise ValueError("in the dataset")

    spec = tensorflow.TensorSpec((), tensorflow.int64)
    taken: list[Any] = []
    with pytest.raises(tensorflow.errors.OpError, match="in the dataset"):
        taken.extend(up.prefetch(tensorflow.data.Dataset.from_generator(source, output_signature=spec), "tensorflow"))
    assert [int(each) for each in taken] == [0, 1, 2]


def test_tensors_that_are_not_one_array_are_refused(up: Uploader, tensorflow: Any) -> None:
    ragged = tensorflow.ragged.constant([[1, 2], [3]])
    sparse = tensorflow.sparse.from_dense([[0, 1]])
    text = tensorflow.constant(["a", "b"])
    for each in (ragged, sparse, text, (ragged, 1.0)):
        dataset = tensorflow.data.Dataset.from_tensors(each)
        with pytest.raises(UsageError, match=r"^batch(\[0\])?: "):
            list(up.prefetch(dataset, "tensorflow"))


@pytest.mark.usefixtures("own_uploaders")
def test_each_way_of_each_loop_of_the_benchmark_gives_the_right_contents(framework: FrameworkName) -> None:
    peer = PEERS[framework]("host")
    for case in never_slower_loops.loops_of(peer, "host"):
        prepared = case.prepare()  # which checks them
        for name, step in {**prepared.ways, **prepared.references}.items():
            prepared.settle(name)
            step()
        assert len(prepared.ways) > 1
        prepared.close()
        peer.synchronize()  # a step that runs keeps its batch
        del prepared, step
        gc.collect()
