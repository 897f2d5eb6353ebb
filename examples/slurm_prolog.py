#!/opt/pyxfer/bin/python
"""Slurm's Prolog: keep jobs away from a node with a faulty link. In slurm.conf: Prolog=/opt/pyxfer/slurm_prolog.py.

If it fails, Slurm drains the node and queues the job again. It measures each GPU of the job for a second; to try it by
hand, name the devices: `slurm_prolog.py 0 1`.
"""

import os
import sys

import pyxfer


def faults(device: str) -> list[str]:
    """What is certainly wrong with a device, its link or its host."""
    examination = pyxfer.doctor(device, budget="1s", require_gpu=device != "host")
    return [f"{device}: {finding.subject}: {finding.seen}" for finding in examination.of("wrong")]


def main(devices: list[str]) -> int:
    """Examine devices; the exit status is that of the prolog."""
    try:
        found = [fault for device in devices for fault in faults(device)]
    except pyxfer.PyxferError as error:  # such as no usable GPU, or one that is lost
        found = [str(error)]
    for fault in found:
        print(f"pyxfer: {fault}", file=sys.stderr)  # to slurmd's log
    return 1 if found else 0


if __name__ == "__main__":
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as Slurm counts GPUs
    of_the_job = os.environ.get("SLURM_JOB_GPUS", "").split(",")
    sys.exit(main(sys.argv[1:] or list(filter(None, of_the_job))))
