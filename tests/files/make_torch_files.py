"""Write the files in `tests/files/data` with PyTorch 2.13: `python tests/files/make_torch_files.py`."""

from __future__ import annotations

from pathlib import Path

import torch

DATA = Path(__file__).resolve().parent / "data"
DTYPES = (
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("bool", "float16", "float32", "float64", "bfloat16", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2"),
)


def main() -> None:
    DATA.mkdir(exist_ok=True)
    torch.save({name: _counting(getattr(torch, name)) for name in DTYPES}, DATA / "dtypes.pt")
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    for number, each in enumerate(model.state_dict().values()):
        each.copy_(torch.full(each.shape, number))
    torch.save(model.state_dict(), DATA / "state_dict.pt")
    shared = torch.arange(12, dtype=torch.float32)
    parameter = torch.nn.Parameter(torch.arange(2, dtype=torch.float32))
    parameter.note = "with a state of its own"
    checkpoint = {
        "epoch": 3,
        "loss": [0.5, None, True, "text", 1 << 40],
        "model": model.state_dict(),
        "tied": [shared, shared, shared[4:8], shared.reshape(3, 4)[1:]],
        "parameters": (torch.nn.Parameter(torch.zeros(2)), parameter),
        "state": {0: {"step": torch.tensor(7.0)}, 1: {}},
        "nothing": torch.zeros(0, 3),
        "size": torch.Size([1, 2]),
        "dtype": torch.float16,
    }
    torch.save(checkpoint, DATA / "checkpoint.pt")
    torch.save(checkpoint, DATA / "protocol5.pt", pickle_protocol=5)
    torch.save(torch.arange(3), DATA / "alone.pt")
    views = {"good": shared, "turned": shared.reshape(3, 4).T, "apart": shared[::2], "spread": shared[:1].expand(3)}
    torch.save(views, DATA / "views.pt")
    torch.save({"repeated": torch.ones(1, 3).expand(4, 3)}, DATA / "repeated.pt")
    torch.save({"conjugated": torch.ones(2, dtype=torch.complex64).conj()}, DATA / "conjugated.pt")
    torch.save(torch.nn.Linear(1, 1), DATA / "module.pt")
    torch.save({"sparse": torch.eye(2).to_sparse()}, DATA / "sparse.pt")
    torch.save({"storage": torch.ones(2).untyped_storage()}, DATA / "storage.pt")
    torch.save({"w": torch.ones(2)}, DATA / "before_1_6.pt", _use_new_zipfile_serialization=False)
    torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), DATA / "script.pt")


def _counting(dtype: torch.dtype) -> torch.Tensor:
    """A tensor whose bytes count up, so that a test knows them."""
    found = torch.arange(6 * dtype.itemsize, dtype=torch.uint8)
    return (found % 2 if dtype == torch.bool else found).view(dtype).reshape(2, 3)


if __name__ == "__main__":
    main()
