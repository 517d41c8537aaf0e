"""The shell between a job and its command: env script, search paths, python, then the command.

A profiler, when there is one, comes between env and python.

The command's words arrive as words: nothing in them is read by a shell. How far it got, the shell
tells on a pipe that it closes before the command starts, which so cannot take it back.
"""

import os
from typing import Any, Dict, List, Optional, Tuple

from .files import AgentError, find_program
from .proc import COOKIE

JOB_MARK = "@JOB@"  # stands for the job's folder in a command's words

# The env script sees no positional parameters, may not swallow the command's, and may go to other
# folders. Settings are appended after it, as the established command line does; the target's own
# variables come last and win. Builtins are asked for by name: a script may define functions.
SHELL = r"""
__mxfleet_told=$1 __mxfleet_env=$2 __mxfleet_python=$3 __mxfleet_profiler=$4; shift 4
__mxfleet_command=("$@"); set --
__mxfleet_cwd=$PWD
if [ -n "$MXFLEET_ENV_SCRIPT" ]; then
  source "$MXFLEET_ENV_SCRIPT" ||
    { builtin echo "env_script $?" >&"$__mxfleet_told"; builtin exit 97; }
fi
[ -z "$MXFLEET_PATH" ] || builtin export PATH="$PATH:$MXFLEET_PATH"
[ -z "$MXFLEET_LD_LIBRARY_PATH" ] ||
  builtin export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$MXFLEET_LD_LIBRARY_PATH"
builtin unset MXFLEET_ENV_SCRIPT MXFLEET_PATH MXFLEET_LD_LIBRARY_PATH
builtin cd -- "$__mxfleet_cwd"
builtin type -P -- "$__mxfleet_python" >/dev/null ||
  { builtin echo python >&"$__mxfleet_told"; builtin exit 97; }
[ -z "$__mxfleet_profiler" ] || builtin type -P -- "$__mxfleet_profiler" >/dev/null ||
  { builtin echo profiler >&"$__mxfleet_told"; builtin exit 97; }
builtin echo started >&"$__mxfleet_told"
builtin exec "$__mxfleet_env" "${__mxfleet_command[@]}" {__mxfleet_told}>&-
"""


class Told(object):
    """The pipe on which the shell tells how far it got; the child has to inherit ``child_end``."""

    def __init__(self) -> None:
        self._end, self.child_end = os.pipe()
        self._said = b""
        # What an env script leaves running may hold the other end for good.
        os.set_blocking(self._end, False)

    def words(self) -> List[str]:
        """What was told, once the shell or the command has ended."""
        try:
            self._said += os.read(self._end, 4096)
        except BlockingIOError:
            pass
        return self._said.decode("ascii", "replace").split()

    def started(self) -> None:
        """Say it in the place of a shell: the command is forked from one that went before."""
        os.write(self.child_end, b"started\n")

    def forget(self) -> None:
        """What was told is of a shell whose command is not the job after all."""
        self.words()
        self._said = b""

    def close(self) -> None:
        os.close(self._end)
        os.close(self.child_end)


def shell_command(
    spec: Dict[str, Any], cwd: str, folder: str, told: Told
) -> Tuple[List[str], Dict[str, str]]:
    """The argument vector and environment that run ``spec`` (python, argv, env, profiler, ...)."""
    search = os.environ.get("PATH", os.defpath) + ":/bin:/usr/bin"
    bash, env_program = find_program("bash", search), find_program("env", search)
    if bash is None or env_program is None:
        raise AgentError("bash", "there is no bash to source the env script with", "install bash")
    env = dict(os.environ)
    script = env_script_of(spec, cwd)
    if script and not os.path.isfile(script):
        raise AgentError(
            "env_script",
            "the env script %s does not exist here" % script,
            "set `env_script` in the inventory, or `env_script: none`",
        )
    extra = spec.get("env") or {}
    env.update(extra)
    env.update(
        {
            COOKIE: spec["job"],
            "MXFLEET_JOB": folder,
            "MXFLEET_ENV_SCRIPT": script,
            "MXFLEET_PATH": ":".join(spec.get("path") or ()),
            "MXFLEET_LD_LIBRARY_PATH": ":".join(spec.get("ld_library_path") or ()),
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
    )
    words = [bash, "--noprofile", "--norc", "-c", SHELL, "mxfleet", str(told.child_end)]
    profiler = list(spec.get("profiler") or ())
    words += [env_program, spec["python"], profiler[0] if profiler else ""]
    words += ["%s=%s" % item for item in sorted(extra.items())]
    # The controller does not know where the job's folder will be.
    argv = profiler + [spec["python"]] + list(spec["argv"])
    words += [word.replace(JOB_MARK, folder) for word in argv]
    if any("\0" in word for word in words):
        raise AgentError("protocol", "a NUL byte in the job's command or environment")
    return words, env


def env_script_of(spec: Dict[str, Any], cwd: str) -> str:
    """The path of the env script, ``""`` when there is none.

    ``../env.sh`` is beside the folder where the job really runs, also when its name is a link.
    """
    script = spec.get("env_script")
    return os.path.normpath(os.path.join(os.path.realpath(cwd), script)) if script else ""


def refusal(why: List[str], spec: Dict[str, Any], cwd: str) -> Optional[AgentError]:
    """Why the shell did not get as far as the command, from what it told; None when it did."""
    script = env_script_of(spec, cwd)
    if why[:1] == ["python"]:
        return AgentError(
            "python",
            "python %r was not found after sourcing the env script" % spec["python"],
            "set `python` (or `path`) in the inventory",
        )
    if why[:1] == ["profiler"]:
        return AgentError(
            "profiler",
            "the profiler %r was not found after sourcing the env script" % spec["profiler"][0],
            "install it there, or name its folder in `path` of the inventory",
        )
    hint = "what it printed is in the job's log; its last command has to succeed"
    if why[:1] == ["env_script"]:
        text = "the env script %s ended with status %s" % (script, why[1])
        return AgentError("env_script", text, hint)
    if why[:1] != ["started"]:
        text = "the env script %s ended the shell before the command" % script
        return AgentError("env_script", text, hint)
    return None
