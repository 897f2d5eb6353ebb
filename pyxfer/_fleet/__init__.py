"""All hosts of a cluster: each measures itself, and together they judge each of them."""
