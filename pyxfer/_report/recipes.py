"""Code for a program, for every framework route that `explain` may recommend.

In the code `x` is a NumPy array, `y` an array on the GPU, `back` what came from it, and `t` a tensor in host memory.
The code is complete: it runs on an ordinary array, and makes the memory that its route needs.
"""

from __future__ import annotations

from typing import NamedTuple


class Recipe(NamedTuple):
    code: str
    condition: str = ""


_FILLED_FIRST = "filling that memory is not in this time"
_WAIT = "wait before reading the result"
_SHARED = "the result uses the array's memory: do not change or free the array before the last use of the result"
_ALIGNED = "the data must begin at a multiple of 64 bytes; at other addresses TensorFlow aborts the process"
_PINNED = """\
pinned = pyxfer.empty_pinned(x.shape, x.dtype)
pinned[...] = x  # once; then write new data into it
"""
_ALIGN = """\
room = np.empty(x.nbytes + 64, np.uint8)
begin = -room.ctypes.data % 64
aligned = room[begin : begin + x.nbytes].view(x.dtype).reshape(x.shape)
aligned[...] = x  # once; then write new data into it
"""
_TENSORFLOW_COPY = """\
with tf.device("/GPU:0"):
    y = tf.identity(shared)
"""
_SHARDINGS = """\
gpu = jax.devices("gpu")[0]
in_host = jax.sharding.SingleDeviceSharding(gpu, memory_kind="pinned_host")
"""

_TORCH = {
    "torch.to": Recipe('import torch\ny = torch.from_numpy(x).to("cuda")'),
    "torch.to-nonblocking": Recipe('import torch\ny = torch.from_numpy(x).to("cuda", non_blocking=True)'),
    "torch.pin-to": Recipe('import torch\ny = torch.from_numpy(x).pin_memory().to("cuda", non_blocking=True)'),
    "torch.pinned-nonblocking": Recipe(
        "import torch\n"
        "pinned = torch.from_numpy(x).pin_memory()  # once; then write new data into it\n"
        'y = pinned.to("cuda", non_blocking=True)',
        f"{_FILLED_FIRST}, and it must not change before the copy is done",
    ),
    "torch.loader-pinned": Recipe(
        "import torch\n"
        "loader = torch.utils.data.DataLoader(torch.from_numpy(x), 8, pin_memory=True)\n"
        "for rows in loader:\n"
        '    y = rows.to("cuda", non_blocking=True)'
    ),
    "torch.cpu": Recipe("back = y.cpu()"),
    "torch.copy-to-pinned": Recipe(
        "import torch\n"
        "back = torch.empty(y.shape, dtype=y.dtype, pin_memory=True)  # once\n"
        "back.copy_(y, non_blocking=True)\n"
        "torch.cuda.synchronize()",
        _WAIT,
    ),
    "torch.to-cpu-nonblocking": Recipe(
        'import torch\nback = y.to("cpu", non_blocking=True)\ntorch.cuda.synchronize()', _WAIT
    ),
    "torch.ingest": Recipe("import torch\nt = torch.from_numpy(x)", _SHARED),
    "torch.ingest-copy": Recipe("import torch\nt = torch.tensor(x)"),
}
_TENSORFLOW = {
    "tf.constant": Recipe('import tensorflow as tf\nwith tf.device("/GPU:0"):\n    y = tf.constant(x)'),
    "tf.function": Recipe(
        "import tensorflow as tf\n"
        "@tf.function\n"
        "def send(x):\n"
        '    with tf.device("/GPU:0"):\n'
        "        return tf.identity(x)  # your work on the GPU\n"
        "y = send(x)"
    ),
    "tf.dlpack-pageable": Recipe(
        "import numpy as np\n"
        "import tensorflow as tf\n"
        f"{_ALIGN}"
        "shared = tf.experimental.dlpack.from_dlpack(aligned.__dlpack__())\n"
        f"{_TENSORFLOW_COPY}",
        f"{_ALIGNED}; {_FILLED_FIRST}",
    ),
    "tf.dlpack-pinned": Recipe(
        "import pyxfer\n"
        "import tensorflow as tf\n"
        f"{_PINNED}"
        "shared = tf.experimental.dlpack.from_dlpack(pinned.__dlpack__())\n"
        f"{_TENSORFLOW_COPY}",
        _FILLED_FIRST,
    ),
    "tf.data-prefetch": Recipe(
        "import tensorflow as tf\n"
        "rows = tf.data.Dataset.from_tensor_slices(x).batch(8)\n"
        'for y in rows.apply(tf.data.experimental.prefetch_to_device("/GPU:0")):\n'
        "    ...  # your work",
        "making the dataset from x is not in this time",
    ),
    "tf.numpy": Recipe("back = y.numpy()"),
    "tf.array-view": Recipe("import numpy as np\nback = np.asarray(y)", "the result is read-only"),
    "tf.ingest": Recipe('import tensorflow as tf\nwith tf.device("/CPU:0"):\n    t = tf.constant(x)'),
    "tf.ingest-dlpack": Recipe(
        "import numpy as np\n"
        "import tensorflow as tf\n"
        f"{_ALIGN}"
        "t = tf.experimental.dlpack.from_dlpack(aligned.__dlpack__())",
        f"{_ALIGNED}; {_SHARED}",
    ),
}
_JAX = {
    "jax.device-put": Recipe("import jax\ny = jax.device_put(x)"),
    "jax.device-put-pinned": Recipe(
        f"import jax\nimport pyxfer\n{_PINNED}y = jax.device_put(pinned)",
        f"{_FILLED_FIRST}, and it must not change before the copy is done",
    ),
    "jax.device-put-nostage": Recipe(
        "import jax\n"
        'unstaged = {"should_stage_host_to_device_transfers": False}\n'
        'jax.config.update("jax_pjrt_client_create_options", unstaged)\n'
        "y = jax.device_put(x)",
        "set the option before JAX is first used",
    ),
    "jax.pinned-host-to-device": Recipe(
        f"import jax\n{_SHARDINGS}"
        'on_gpu = jax.sharding.SingleDeviceSharding(gpu, memory_kind="device")\n'
        "pinned = jax.device_put(x, in_host)\n"
        "y = jax.device_put(pinned, on_gpu)",
        _FILLED_FIRST,
    ),
    "jax.asarray": Recipe("import numpy as np\nback = np.asarray(y)", "the result is read-only"),
    "jax.to-pinned-host": Recipe(f"import jax\n{_SHARDINGS}back = jax.device_put(y, in_host)"),
    "jax.ingest": Recipe(
        'import jax\nwith jax.default_device(jax.local_devices(backend="cpu")[0]):\n    t = jax.numpy.asarray(x)'
    ),
    "jax.ingest-device-put": Recipe(
        f'import jax\nimport numpy as np\n{_ALIGN}t = jax.device_put(aligned, jax.local_devices(backend="cpu")[0])',
        f"the data must begin at a multiple of 64 bytes, or JAX copies it; {_SHARED}",
    ),
}
_CUPY_PINNED = """\
pinned = cupyx.empty_pinned(x.shape, x.dtype)
pinned[...] = x  # once; then write new data into it
"""
_CUPY = {
    "cupy.asarray": Recipe("import cupy\ny = cupy.asarray(x)"),
    "cupy.asarray-pinned": Recipe(f"import cupy\nimport cupyx\n{_CUPY_PINNED}y = cupy.asarray(pinned)", _FILLED_FIRST),
    "cupy.set": Recipe("import cupy\ny = cupy.empty(x.shape, x.dtype)  # once\ny.set(x)"),
    "cupy.set-pinned": Recipe(
        f"import cupy\nimport cupyx\n{_CUPY_PINNED}y = cupy.empty(x.shape, x.dtype)  # once\ny.set(pinned)",
        _FILLED_FIRST,
    ),
    "cupy.get": Recipe("back = y.get()"),
    "cupy.get-pinned": Recipe(
        "import cupy\n"
        "import cupyx\n"
        "back = cupyx.empty_pinned(y.shape, y.dtype)  # once\n"
        "y.get(out=back, blocking=False)\n"
        "cupy.cuda.get_current_stream().synchronize()",
        _WAIT,
    ),
    "cupy.ingest": Recipe(
        "import cupyx\nt = cupyx.empty_pinned(x.shape, x.dtype)\nt[...] = x",
    ),
}
# In place of a raw staged copy.
RAW_UPLOAD = 'import pyxfer\ny = pyxfer.upload(x, to="torch")  # or "tensorflow", "jax", "cupy"'
RAW_DOWNLOAD = "import pyxfer\nback = pyxfer.download(y)"


def _through_ring(owner: str, framework: str) -> dict[str, Recipe]:
    return {
        f"{owner}.upload": Recipe(f'import pyxfer\ny = pyxfer.upload(x, to="{framework}")'),
        f"{owner}.download": Recipe(RAW_DOWNLOAD),
        f"{owner}.download-into": Recipe(
            f"{RAW_DOWNLOAD}  # once; then into the same array\npyxfer.download(y, out=back)"
        ),
    }


RECIPES = {
    **_TORCH,
    **_through_ring("torch", "torch"),
    **_TENSORFLOW,
    **_through_ring("tf", "tensorflow"),
    "tf.prefetch": Recipe(
        'import pyxfer\nfor y in pyxfer.prefetch([x], to="tensorflow"):  # [x]: your batches\n    ...  # your work'
    ),
    **_JAX,
    **_through_ring("jax", "jax"),
    **_CUPY,
    **_through_ring("cupy", "cupy"),
}
_PLACES = ("convert-on-device", "cast-on-host", "permute-on-host", "convert-on-host", "upload-converted")
_ORDERS = [f"{owner}.{name}" for owner in ("torch", "tf", "jax", "cupy") for name in _PLACES]
NOT_RECOMMENDED = {
    "tf.rawop": "its calls are private",
    "tf.ingest-rawop": "its calls are private",
    "tf.cpu-op": "it sends the result of an operation, not an array",
    "tf.function-jit": "it computes something, because XLA would remove a copy alone",
    "tf.cast-eager": "its result has another dtype",
    "torch.cast-blocking": "its result has another dtype",
    "torch.cast-nonblocking": "its result has another dtype",
    "torch.noncontiguous": "it sends every second column",
    "torch.channels-last": "its result has another layout",
    **dict.fromkeys(_ORDERS, "its result has another form"),
}
