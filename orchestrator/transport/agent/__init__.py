"""The agent: what runs on the other side of a pipe, on the host's own Python (3.6 or later).

These modules use the standard library only and are sent, as one bundle, down every pipe (see
``orchestrator.transport.bootstrap``), so that the agent always matches the controller and nothing
is installed. Each module may import the ones before it in ``MODULES`` and nothing else of ours.
"""

# In the order of their dependencies: the bootstrap executes them one after the other.
MODULES = (
    "wire",
    "files",
    "content",
    "trees",
    "sync",
    "proc",
    "guard",
    "spool",
    "shell",
    "shadow",
    "claims",
    "jobfolder",
    "warm",
    "jobs",
    "fetch",
    "made",
    "attach",
    "gpus",
    "lockfiles",
    "proof",
    "locks",
    "facts",
    "serve",
)
