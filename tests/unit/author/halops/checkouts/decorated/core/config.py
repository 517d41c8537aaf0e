import copy
from pathlib import Path

import yaml


def load(argv):
    text = Path(argv[0]).read_text()
    return None, yaml.safe_load(text)


def expand(conf):
    """One config for each batch size."""
    sizes = conf.get("batch_sizes") or [conf.get("batch_size", 1)]
    for size in sizes:
        one = copy.deepcopy(conf)
        one["batch_size"] = size
        yield one
