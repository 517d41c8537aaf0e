"""The YAML side of the inventory: every key, its type and what it is for.

The descriptions here are what editors show (through the JSON Schema made from these models).
Values are checked one by one (``values``); what they mean together (precedence, ranges, groups)
is in ``resolve``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from orchestrator.inventory.model import NONE
from orchestrator.inventory.values import (
    Address,
    Below,
    Command,
    ContainerName,
    EnvName,
    Folder,
    FolderOrNone,
    Gpu,
    Libraries,
    Model,
    Names,
    OptionName,
    PathEntry,
    Port,
    Rate,
    Raw,
    Retries,
    Seconds,
    SecondsOrNever,
    Text,
    Word,
    empty,
    named,
    some,
)


class Strict(BaseModel):
    """A mapping of the file: unknown keys are errors, and every key may be left out."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class SuiteEntry(Strict):
    """What a target sets for one suite."""

    workdir: FolderOrNone = NONE
    """Absolute folder of an established checkout of this suite on the target; `none` (default):
    the target's own `workdir`."""

    sync: tuple[Below, ...] = ()
    """Folders below the workdir that push keeps in step, such as `config` and `runners`."""

    results: tuple[Below, ...] = ()
    """Globs, relative to the suite's workdir, of the files that a run fetches as results."""


class SuitesEntry(Strict):
    """Settings for one suite each."""

    mcoplib: SuiteEntry = SuiteEntry()
    """Settings for the mcoplib operators."""

    halops: SuiteEntry = SuiteEntry()
    """Settings for the HALOps attention and GEMM sweeps."""


class FlopsEntry(Strict):
    """Operations a second by type, dense."""

    float64: Rate = 0.0
    """Double precision, with tensor cores where they do it."""

    float32: Rate = 0.0
    """Single precision, without the tf32 mode."""

    tf32: Rate = 0.0
    """Single precision in the tf32 mode."""

    float16: Rate = 0.0
    """Half precision, fp16."""

    bfloat16: Rate = 0.0
    """Half precision, bfloat16."""

    float8: Rate = 0.0
    """Both 8-bit floating-point formats."""

    int8: Rate = 0.0
    """Integers of 8 bits."""


class GpuSpecsEntry(Strict):
    """What one GPU model can do at most; what is left out stays as the harness knows it."""

    bandwidth: Rate = 0.0
    """Memory bandwidth in bytes a second, such as 1.8432e+12."""

    flops: FlopsEntry = FlopsEntry()
    """Operations a second by type, without sparsity, such as {bfloat16: 2.8e+14}."""

    source: Text = ""
    """Where the numbers are from; shown with every result that uses them."""


class TimeoutsEntry(Strict):
    """Limits in seconds; `none` never expires."""

    silence: SecondsOrNever = None
    """Seconds without any output after which a job counts as hanging; `none` (default): never."""

    job: SecondsOrNever = None
    """Seconds that one job may take (default 3600); `none`: no limit."""

    run: SecondsOrNever = None
    """Seconds that a whole run may take; `none` (default): no limit."""

    dead_link: Seconds = 15.0
    """Seconds without a heartbeat after which the link to a host counts as lost (default 15)."""

    reattach: Seconds = 3.0
    """Seconds that a job goes on after its link was lost, for us to come back (default 3)."""

    detached: Seconds = 43200.0
    """As `reattach`, for a run that was started with --detach (default 43200, half a day)."""


class TargetSettings(Strict):
    """What may differ between the containers of a host."""

    workdir: FolderOrNone = NONE
    """Absolute path on the target of the benchmark/ folder of an established checkout; `none`
    (default): jobs run in a tree that push lays out under `store`."""

    store: Folder = ""
    """Absolute folder on the target for trees and jobs; left out: below the login's home, or
    /tmp where that is not writable."""

    lock_folder: Folder = ""
    """Absolute folder on the host for the locks on its devices, shared by all its users (default
    /tmp/mxfleet-locks). On a host without Python the container locks there: then it has to be
    mounted in the container under the same path."""

    env_script: Word = ""
    """Script sourced before every job, relative to the benchmark/ folder that the job runs in;
    `none`: no script. Default: ../env/env.sh of a pushed tree, ../env.sh with a `workdir`."""

    python: Word = "python3"
    """The Python that runs the jobs (default python3): a name or an absolute path."""

    env: dict[EnvName, Raw] = {}
    """Environment variables of the jobs, set after the env script; merged key by key."""

    path: tuple[PathEntry, ...] = ()
    """Absolute folders appended to PATH after the env script."""

    ld_library_path: tuple[PathEntry, ...] = ()
    """Absolute folders appended to LD_LIBRARY_PATH after the env script."""

    docker_command: Command = ("docker",)
    """Command for containers (default docker): `sudo -n docker`, `podman`, or a list of words."""

    docker_user: Word = ""
    """User inside the container, as docker exec --user; left out: the container's own."""

    gpus: tuple[Gpu, ...] = ()
    """GPUs that jobs may use: indices, UUIDs or PCI bus ids; an empty list: all (default)."""

    model: Text = ""
    """Device model that the target is expected to have, such as C500."""

    gpu_specs: dict[Model, GpuSpecsEntry] = {}
    """Peaks of GPU models by name, such as C600, to hold results against; merged key by key. Only
    our own harness uses them, not the scripts of an established checkout."""

    library: Libraries = ()
    """Operator library that serves the runners' namespaces: mcoplib, vllm, sgl_kernel or the
    absolute path of a shared object, for one namespace alone as NAMESPACE=...; one or a list. Left
    out: the one that a runner imports, or the only one there is. Only our own harness uses it."""

    timeouts: TimeoutsEntry = TimeoutsEntry()
    """Limits in seconds; merged key by key."""

    retries: Retries = 2
    """How often a connect or a job is tried again after its link was lost (default 2). What failed
    its verification, crashed or took too long is never tried again by itself."""

    suites: SuitesEntry = SuitesEntry()
    """Settings for single suites; merged key by key."""


class ContainerEntry(TargetSettings):
    """One of several containers of a host, with the settings that are its own."""

    name: ContainerName
    """Name or id of a running container, or `none` for the host itself."""


class Settings(TargetSettings):
    """What may stand in `defaults`, in a group and in a host; the nearest one counts."""

    transport: Literal["ssh", "openssh", "local"] = "ssh"
    """How the host is reached: ssh (default), openssh (the ssh command, for what ssh cannot
    do), local (this machine, no SSH)."""

    address: Address = ""
    """Name or IP address to connect to; left out: the host's name as ssh resolves it."""

    port: Port = 22
    """SSH port; left out: what the SSH configuration says."""

    user: Address = ""
    """Login on the host; left out: what the SSH configuration says."""

    identity_file: Text = ""
    """Private key file on this machine, `~` expanded, relative to the inventory's folder."""

    ssh_config: Text = ""
    """SSH configuration file to use instead of ~/.ssh/config, as ssh -F; `~` expanded, relative
    to the inventory's folder."""

    host_keys: Literal["accept-new", "strict"] = "accept-new"
    """What happens with unknown host keys: accept-new (default) or strict (refuse). A changed
    key is always refused."""

    connect_timeout: Seconds = 15.0
    """Seconds to reach and log in to the host (default 15)."""

    host_python: Names = ("python3", "python")
    """Python on the host itself that mxfleet's agent runs with, 3.6 or later: a name or path, or
    a list of which the first that works is taken (default python3, python)."""

    options: dict[OptionName, Text] = {}
    """Further OpenSSH options, as ssh -o; merged key by key."""

    container: ContainerName = NONE
    """Name or id of the running container that jobs run in; `none` (default): on the host."""

    containers: Annotated[
        tuple[Annotated[ContainerEntry, BeforeValidator(named)], ...],
        AfterValidator(some),
        Field(json_schema_extra={"minItems": 1}),
    ] = ()
    """Several containers of a host, each a target of its own: names, or mappings with `name` and
    settings. Stands in the place of `container`."""


class GroupEntry(Settings):
    """A group: which hosts are in it, and settings for all of them."""

    hosts: Names
    """The members as a node set or a list of them: names, ranges such as c500-[01-08], other
    groups such as @c500, and the operators of --hosts."""


class PushEntry(Strict):
    """What of the working folder is pushed."""

    exclude: tuple[Text, ...] = ()
    """Globs of further names or paths below the working folder that are not pushed, such as
    `*.log` or benchmark/scratch."""

    symlinks: Literal["keep", "follow", "refuse"] = "keep"
    """Symbolic links in the tree: keep (default) sends those that stay inside as links and refuses
    others, follow sends what they point to, refuse allows none."""


class InventoryFile(Strict):
    """The hosts that mxfleet works on, how to reach them, and where jobs run on them."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": [key], "properties": {key: {"type": "object", "minProperties": 1}}}
                for key in ("hosts", "groups")
            ]
        }
    )

    defaults: Annotated[Settings, BeforeValidator(empty)] = Settings()
    """Settings for every host; a group and a host override them."""

    groups: Annotated[
        dict[str, Annotated[GroupEntry, BeforeValidator(empty)]], BeforeValidator(empty)
    ] = {}
    """Named sets of hosts, selected with --hosts @NAME; their settings override `defaults`, and
    of two groups the one further down in the file counts."""

    push: PushEntry = PushEntry()
    """What of the working folder is pushed, to all targets alike."""

    hosts: Annotated[
        dict[str, Annotated[Settings, BeforeValidator(empty)]], BeforeValidator(empty)
    ] = {}
    """The hosts by name; a key may be a range such as c500-[01-08]. Settings here count most.
    A host without settings of its own is written as `name:` with nothing after it. Left out or
    empty: the hosts are those that the groups name."""
