"""A relay or the origin as a process of its own: `python -m tests.relay.serve NAME URL RUN KEYS DIRECTORY [PARENT]`."""

import sys
from pathlib import Path

from bus import Component
from relay.node import RelayNode

if __name__ == "__main__":
    name, url, run, keys, directory, *parent = sys.argv[1:]
    component = Component("relay", name, url=url, run=run, keys=keys)
    component.task(RelayNode(Path(directory), parent="".join(parent), origin=not parent).serve)
    component.run()
