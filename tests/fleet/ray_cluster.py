"""A Ray cluster on this machine: prints its address, and kills the raylet of each host that a line on stdin names.

Its argument is a JSON object: the environment of each host. Each raylet has one GPU, as it says.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from ray.cluster_utils import Cluster

MEMORY = 80 << 20


def main() -> None:
    cluster: Any = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "num_gpus": 0, "object_store_memory": MEMORY, "include_dashboard": False},
    )
    nodes = {
        name: cluster.add_node(
            num_cpus=1,
            num_gpus=1,
            labels={"pyxfer/host": name, "rack": variables.get("RACK", "a")},
            env_vars={"HOST": name, **variables},
            object_store_memory=MEMORY,
        )
        for name, variables in json.loads(sys.argv[1]).items()
    }
    print(json.dumps(cluster.address), flush=True)
    for line in sys.stdin:
        cluster.remove_node(nodes[line.strip()], allow_graceful=False)
        print(json.dumps("killed"), flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
