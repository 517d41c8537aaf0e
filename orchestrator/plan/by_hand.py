"""What mxfleet does on a target as lines that a person can paste or sit in.

mxfleet itself sends words, never a shell line; here a shell has to read them, so everything is
quoted for the shells that it passes: the person's own, the login's, and bash on the target.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from orchestrator.errors import ExitCode, UsageError
from orchestrator.inventory.model import Target
from orchestrator.plan.jobs import PlannedJob, command_words, environment_steps
from orchestrator.suites import mcoplib
from orchestrator.transport.endpoint import Endpoint
from orchestrator.transport.quote import quote
from orchestrator.transport.ssh_resolve import ssh_arguments


def reproduce(job: PlannedJob, endpoint: Endpoint) -> str:
    """One line that runs ``job``'s command where it ran; its results go to a folder of their own.

    Raises ``UsageError`` for a job that no line can repeat.
    """
    spec = job.spec
    if spec.get("overlay"):
        raise UsageError(
            f"{job.op} ran in a private copy of the checkout, with {spec['overlay']['values']}",
            where=job.target.name,
            hint="repeat it with mxfleet run, or edit the config in a copy of your own",
        )
    variables = [shlex.quote(f"{name}={value}") for name, value in sorted(spec["env"].items())]
    words = [_with_folder(word) for word in command_words(spec)]
    command = [*(["env", *variables] if variables else []), *words]
    steps = [*_place(spec, job.target), "D=$(mktemp -d)", " ".join(command), 'ls -l "$D"']
    return shlex.join(_from_here(job.target, endpoint, " && ".join(steps), terminal=False))


def sit_in(target: Target, endpoint: Endpoint, tree: str) -> list[str]:
    """The command that gives a terminal on ``target``: env sourced, in the tree or checkout.

    ``python`` there is the one of the jobs. Where the folder or the env script is missing, the
    command says so and exits with 3: half of the environment would mislead.
    """
    spec = {
        "store": target.store,
        "tree": tree,
        "subfolder": mcoplib.SUBFOLDER,
        "env_script": target.env_script,
        "path": list(target.path),
        "ld_library_path": list(target.ld_library_path),
        **({"workdir": target.workdir} if target.workdir is not None else {}),
    }
    variables = [f"{name}={shlex.quote(value)}" for name, value in sorted(target.env.items())]
    exports = [f"export {' '.join(variables)}"] if variables else []
    place, *environment = _place(spec, target)
    if target.env_script is not None:
        script = shlex.quote(target.env_script)
        missing = _refusal(target, f"there is no env script {target.env_script}", "set env_script")
        environment.insert(0, f"[ -r {script} ] || {missing}")
    no_folder = _refusal(target, "its folder cannot be entered", "mxfleet doctor says more")
    steps = [f"{place} || {no_folder}", *environment, *exports, *_python(target.python)]
    return _from_here(target, endpoint, "; ".join([*steps, "exec bash -i"]), terminal=True)


def _refusal(target: Target, what: str, hint: str) -> str:
    text = shlex.quote(f"mxfleet: {target.name}: {what}; {hint}")
    return f"{{ printf '%s\\n' {text} >&2; exit {int(ExitCode.TARGET)}; }}"


def _python(python: str) -> list[str]:
    """Steps in bash after which ``python`` is the Python that runs jobs, whatever it is called."""
    word = shlex.quote(python)
    folder, slash, name = python.rpartition("/")
    steps = []
    if slash:
        # Only where it has to be: the folder may hold more that would hide the env script's. By its
        # path: a virtual environment's Python is a link to the one that it must not be.
        found = f'[ "$(command -v {shlex.quote(name)})" = {word} ]'
        steps.append(f'{found} || export PATH={shlex.quote(folder)}:"$PATH"')
    if name != "python":
        steps.append(f'python() {{ {word} "$@"; }}; export -f python')
    said = shlex.quote(f"mxfleet: python is {python}")
    return [*steps, f"printf '%s\\n' {said} >&2"]


def _with_folder(word: str) -> str:
    """A word for bash; the mark of the job's folder becomes the new folder ``$D``."""
    head, mark, tail = word.partition(mcoplib.JOB)
    if not mark:
        return shlex.quote(word)
    return f'{shlex.quote(head) if head else ""}"$D"{shlex.quote(tail) if tail else ""}'


def _place(spec: dict[str, Any], target: Target) -> list[str]:
    """Steps in bash to the folder and the environment of a job."""
    if "workdir" in spec:
        steps = [f"cd {shlex.quote(spec['workdir'])}"]
    else:
        tail = shlex.quote(f"/trees/{spec['tree']}/{spec['subfolder']}")
        steps = [f"cd {_store(spec['store'], target)}{tail}"]
    return [*steps, *environment_steps(spec)]


def _store(store: str | None, target: Target) -> str:
    """The store as bash finds it; the defaults are the agent's."""
    if store is None:
        return '"/tmp/mxfleet-$(id -u)"' if target.container is not None else '"$HOME"/.mxfleet'
    if store == "~" or store.startswith("~/"):
        return f'"$HOME"{shlex.quote(store[1:]) if store[1:] else ""}'
    return shlex.quote(store)


def _from_here(target: Target, endpoint: Endpoint, script: str, *, terminal: bool) -> list[str]:
    """The words of a command on this machine that has bash on the target read ``script``."""
    words: Sequence[str] = ["bash", "-c", script]
    if target.container is not None:
        user = ["--user", target.docker_user] if target.docker_user else []
        flags = "-it" if terminal else "-i"
        words = [*target.docker_command, "exec", flags, *user, target.container, *words]
    if endpoint.transport == "local":
        return list(words)
    if endpoint.transport not in ("ssh", "openssh"):
        raise UsageError(
            f"the transport {endpoint.transport} has no command line",
            where=target.name,
            hint="only local, ssh and openssh have",
        )
    tty = ["-t"] if terminal else []
    return ["ssh", *tty, *ssh_arguments(endpoint), endpoint.name, quote(words)]
