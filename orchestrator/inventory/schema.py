"""The YAML side of the inventory: every key, its type and what it is for.

The descriptions here are what editors show (through the JSON Schema made from these models).
Values are checked one by one; what they mean together (precedence, ranges, groups) is in
``resolve``.
"""

from __future__ import annotations

import math
import re
import shlex
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
)

from orchestrator.inventory.model import NONE

_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_CONTAINER = r"[a-zA-Z0-9][a-zA-Z0-9_.-]+"  # as Docker has it
_ENV_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
HOST_NAME = re.compile(_NAME)
CONTAINER_NAME = re.compile(_CONTAINER)
SECRET_KEY = re.compile(
    r"(?i)(?:^|_)(?:password|passwd|passphrase|secret|token|api_key|access_key|private_key)$"
)
_SECRET_ENV = re.compile(
    r"(?i)(?:^|_)(?:PASSWORD|PASSWD|PASSPHRASE|SECRET|(?:API|ACCESS|SECRET|PRIVATE)_KEY"
    r"|(?:AUTH|ACCESS|API|HF|HUB|GITHUB|GITLAB)_TOKEN)$|^TOKEN$"
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def _written(value: Any) -> Any:
    """Text, or a number exactly as it was written."""
    if isinstance(value, bool):
        raise ValueError(
            f'true and false are no text here, put what is meant in quotes: "{str(value).lower()}"'
        )
    if isinstance(value, (int, float)):
        return getattr(value, "text", str(value))
    return value


def _one_line(value: str) -> str:
    if not value:
        raise ValueError("it is empty, remove the line or give it a value")
    if _CONTROL.search(value):
        raise ValueError("it holds a line break or a control character")
    return value


def _no_nul(value: str) -> str:
    if "\0" in value:
        raise ValueError("it holds a NUL character")
    return value


def _no_dash(value: str) -> str:
    if value.startswith("-"):
        raise ValueError("it starts with a dash and would be taken for an option")
    return value


def _no_space(value: str) -> str:
    if any(char.isspace() or char in "/@" for char in value):
        raise ValueError("it holds a space, a slash or an @")
    return value


def _absolute_or_none(value: str) -> str:
    return value if value == NONE else _absolute(value)


def _absolute(value: str) -> str:
    if not value.startswith("/"):
        raise ValueError("it has to be an absolute path on the target, starting with a slash")
    return value.rstrip("/") or "/"


def _path_entry(value: str) -> str:
    if ":" in value:
        raise ValueError("it holds a colon, write every folder as a list item of its own")
    return value


def _below(value: str) -> str:
    if value.startswith("/") or ".." in value.split("/"):
        raise ValueError("it has to lie below the workdir: relative and without `..`")
    return value.rstrip("/")


def _container(value: str) -> str:
    if value != NONE and value.lower() == NONE:
        raise ValueError("write it in small letters: none")
    if not CONTAINER_NAME.fullmatch(value):
        raise ValueError(
            "it is no name Docker gives to a container: letters, digits, `_`, `.` and `-`, at "
            "least two, and a letter or digit first"
        )
    return value


def _gpu(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9:._/-]*", value):
        raise ValueError("it is neither a GPU index, nor a UUID, nor a PCI bus id")
    return value


def _env_name(value: str) -> str:
    if not re.fullmatch(_ENV_NAME, value):
        raise ValueError("it is no name of an environment variable: letters, digits and `_`")
    if _SECRET_ENV.search(value):
        raise ValueError("secrets do not belong into the inventory, set it in the env script")
    return value


def _option_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9]*", value):
        raise ValueError("it is no OpenSSH option, write `Option: value` as in ssh_config(5)")
    if SECRET_KEY.search(value):
        raise ValueError("secrets do not belong into the inventory, use ssh-agent")
    return value


def _words(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return shlex.split(value)
        except ValueError as error:
            raise ValueError(f"its quotes do not match ({error}), or write it as a list") from None
    return value


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, (str, int, float)) else value


def _empty(value: Any) -> Any:
    """A key with nothing after it is an empty mapping, as when all below is commented out."""
    return {} if value is None else value


def _seconds(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("it has to be a number of seconds, without a unit")
    if not math.isfinite(value) or value <= 0 or value > 10**8:
        raise ValueError("it has to be a number of seconds above 0")
    return float(value)


def _seconds_or_never(value: Any) -> Any:
    return None if value == NONE else _seconds(value)


def _port(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 65535:
        raise ValueError("it has to be a number from 1 to 65535")
    return int(value)


_TEXT_JSON = WithJsonSchema({"type": ["string", "number"]})
_SECONDS_JSON = {"type": "number", "exclusiveMinimum": 0}

Raw = Annotated[str, BeforeValidator(_written), AfterValidator(_no_nul), _TEXT_JSON]
Text = Annotated[str, BeforeValidator(_written), AfterValidator(_one_line), _TEXT_JSON]
Word = Annotated[Text, AfterValidator(_no_dash), _TEXT_JSON]
Address = Annotated[Word, AfterValidator(_no_space), _TEXT_JSON]
Folder = Annotated[
    Text, AfterValidator(_absolute), WithJsonSchema({"type": "string", "pattern": "^/"})
]
FolderOrNone = Annotated[
    Text,
    AfterValidator(_absolute_or_none),
    WithJsonSchema({"type": "string", "pattern": "^(/|none$)"}),
]
PathEntry = Annotated[
    Folder, AfterValidator(_path_entry), WithJsonSchema({"type": "string", "pattern": "^/[^:]*$"})
]
Below = Annotated[Text, AfterValidator(_below), WithJsonSchema({"type": "string"})]
ContainerName = Annotated[
    Text,
    AfterValidator(_container),
    WithJsonSchema({"type": "string", "pattern": f"^{_CONTAINER}$"}),
]
Gpu = Annotated[Text, AfterValidator(_gpu), WithJsonSchema({"type": ["string", "integer"]})]
EnvName = Annotated[str, AfterValidator(_env_name)]
OptionName = Annotated[str, AfterValidator(_option_name)]
Seconds = Annotated[float, BeforeValidator(_seconds), WithJsonSchema(_SECONDS_JSON)]
SecondsOrNever = Annotated[
    float | None,
    BeforeValidator(_seconds_or_never),
    WithJsonSchema({"anyOf": [_SECONDS_JSON, {"const": NONE}]}),
]
Port = Annotated[
    int,
    BeforeValidator(_port),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": 65535}),
]
Command = Annotated[
    tuple[Word, ...],
    BeforeValidator(_words),
    Field(min_length=1),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
Names = Annotated[
    tuple[Text, ...],
    BeforeValidator(_listed),
    Field(min_length=1),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]


class Strict(BaseModel):
    """A mapping of the file: unknown keys are errors, and every key may be left out."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class SuiteEntry(Strict):
    """What a target sets for one suite."""

    workdir: Folder = ""
    """Absolute folder of an established checkout of this suite on the target."""

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


class TargetSettings(Strict):
    """What may differ between the containers of a host."""

    workdir: FolderOrNone = NONE
    """Absolute path on the target of the benchmark/ folder of an established checkout; `none`
    (default): jobs run in a tree that push lays out under `store`."""

    store: Folder = ""
    """Absolute folder on the target for trees and jobs; left out: below the login's home, or
    /tmp where that is not writable."""

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

    timeouts: TimeoutsEntry = TimeoutsEntry()
    """Limits in seconds; merged key by key."""

    suites: SuitesEntry = SuitesEntry()
    """Settings for single suites; merged key by key."""


class ContainerEntry(TargetSettings):
    """One of several containers of a host, with the settings that are its own."""

    name: ContainerName
    """Name or id of a running container, or `none` for the host itself."""


def _named(value: Any) -> Any:
    return {"name": value} if not isinstance(value, (dict, list)) else value


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
        tuple[Annotated[ContainerEntry, BeforeValidator(_named)], ...], Field(min_length=1)
    ] = ()
    """Several containers of a host, each a target of its own: names, or mappings with `name` and
    settings. Stands in the place of `container`."""


class GroupEntry(Settings):
    """A group: which hosts are in it, and settings for all of them."""

    hosts: Names
    """The members as a node set or a list of them: names, ranges such as c500-[01-08], other
    groups such as @c500, and the operators of --hosts."""


class InventoryFile(Strict):
    """The hosts that mxfleet works on, how to reach them, and where jobs run on them."""

    defaults: Annotated[Settings, BeforeValidator(_empty)] = Settings()
    """Settings for every host; a group and a host override them."""

    groups: Annotated[
        dict[str, Annotated[GroupEntry, BeforeValidator(_empty)]], BeforeValidator(_empty)
    ] = {}
    """Named sets of hosts, selected with --hosts @NAME; their settings override `defaults`, and
    of two groups the one further down in the file counts."""

    hosts: Annotated[
        dict[str, Annotated[Settings, BeforeValidator(_empty)]],
        BeforeValidator(_empty),
        Field(min_length=1),
    ]
    """The hosts by name; a key may be a range such as c500-[01-08]. Settings here count most.
    A host without settings of its own is written as `name:` with nothing after it."""
