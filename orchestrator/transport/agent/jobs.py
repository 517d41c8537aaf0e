"""Run one command of a job: env script, command, output, limits, and a clean end.

The job's folder is ``<store>/jobs/<job>/``: ``spec.json`` (what was asked), ``output`` (the
spool), what the command writes (``result.csv``, ``records.jsonl``) and ``status.json`` (how it
ended). It stays on the target until it is collected, so that nothing is lost with a connection.
"""

import json
import os
import re
import selectors
import shutil
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional

from .files import AgentError, check_relative, explain_os_error, make_folders, write_whole
from .proc import COOKIE, KEEP, end_tree, members, spawn
from .spool import Spool
from .sync import lock_checkout
from .trees import TreeStore, verify_tree
from .wire import CHUNK

JOB_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,180}$")
JOB_MARK = "@JOB@"  # stands for the job's folder in a command's words
STRAY_OUTPUT_SECONDS = 1.0

# The command's words arrive as words: nothing in them is read by a shell. The env script sees no
# positional parameters and may not swallow them. Settings are appended after it, as the
# established command line does; the target's own variables come last and win.
SHELL = r"""
__mxfleet_python=$1; shift; __mxfleet_command=("$@"); set --
if [ -n "$MXFLEET_ENV_SCRIPT" ]; then
  source "$MXFLEET_ENV_SCRIPT" || { echo "env_script $?" >"$MXFLEET_JOB/refused"; exit 97; }
fi
[ -z "$MXFLEET_PATH" ] || export PATH="$PATH:$MXFLEET_PATH"
[ -z "$MXFLEET_LD_LIBRARY_PATH" ] ||
  export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$MXFLEET_LD_LIBRARY_PATH"
unset MXFLEET_ENV_SCRIPT MXFLEET_PATH MXFLEET_LD_LIBRARY_PATH
type -P -- "$__mxfleet_python" >/dev/null || { echo python >"$MXFLEET_JOB/refused"; exit 97; }
: >"$MXFLEET_JOB/started"
exec env "${__mxfleet_command[@]}"
"""


def job_folder(store: str, job: str) -> str:
    """The folder of a job."""
    if not JOB_NAME.match(job):
        raise AgentError("protocol", "not a job's name: %r" % job)
    return os.path.join(store, "jobs", job)


def shell_command(spec: Dict[str, Any], cwd: str, folder: str) -> "tuple[List[str], Dict[str, str]]":
    """The argument vector and environment that run ``spec`` (python, argv, env, path, ...)."""
    bash = shutil.which("bash", path=os.environ.get("PATH", os.defpath) + ":/bin:/usr/bin")
    if bash is None:
        raise AgentError("bash", "there is no bash to source the env script with", "install bash")
    env = dict(os.environ)
    script = spec.get("env_script")
    if script:
        script = os.path.normpath(os.path.join(cwd, script))
        if not os.path.isfile(script):
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
            "MXFLEET_ENV_SCRIPT": script or "",
            "MXFLEET_PATH": ":".join(spec.get("path") or ()),
            "MXFLEET_LD_LIBRARY_PATH": ":".join(spec.get("ld_library_path") or ()),
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
    )
    words = [bash, "--noprofile", "--norc", "-c", SHELL, "mxfleet", spec["python"]]
    words += ["%s=%s" % item for item in sorted(extra.items())]
    # The controller does not know where the job's folder will be.
    argv = [word.replace(JOB_MARK, folder) for word in spec["argv"]]
    return words + [spec["python"]] + argv, env


def refusal(folder: str, spec: Dict[str, Any], cwd: str) -> Optional[AgentError]:
    """Why the shell did not get as far as the command; None when it did."""
    try:
        with open(os.path.join(folder, "refused")) as stream:
            why = stream.read().split()
    except OSError:
        why = []
    script = os.path.normpath(os.path.join(cwd, spec.get("env_script") or "."))
    if why[:1] == ["python"]:
        return AgentError(
            "python",
            "python %r was not found after sourcing the env script" % spec["python"],
            "set `python` (or `path`) in the inventory",
        )
    if why[:1] == ["env_script"]:
        return AgentError("env_script", "the env script %s ended with status %s" % (script, why[1]))
    if not os.path.exists(os.path.join(folder, "started")):
        return AgentError("env_script", "the env script %s ended the shell" % script)
    return None


class Job(object):
    """One attempt at one command; ``run`` blocks until it has really ended."""

    def __init__(self, spec: Dict[str, Any], store: str) -> None:
        self.spec = spec
        self.store = store
        self.folder = job_folder(store, spec["job"])
        self.stop_reason = None  # type: Optional[str]
        self.finished = threading.Event()
        self._locks = []  # type: List[Optional[int]]

    def stop(self, reason: str) -> None:
        """Ask for the end of the job; ``run`` does it and says why. Safe from any thread."""
        if self.stop_reason is None:
            self.stop_reason = reason

    def run(self, started: Callable[[str], None], data: Callable[[bytes], None]) -> Dict[str, Any]:
        """Run the job. ``started`` gets its folder, ``data`` parts of the spool as they come."""
        cwd = self._prepare()
        began = time.monotonic()
        try:
            spool = Spool(os.path.join(self.folder, "output"))
            sender = threading.Thread(target=self._send, args=(spool, data), daemon=True)
            try:
                words, env = shell_command(self.spec, cwd, self.folder)
                started(self.folder)
                sender.start()
                outcome = self._supervise(words, env, cwd, spool)
            finally:
                spool.close()
            sender.join()
            refused = refusal(self.folder, self.spec, cwd)
            if refused is not None and outcome["ended"] == "exited":
                raise refused
            outcome["seconds"] = time.monotonic() - began
            if spool.failed is not None:
                full = explain_os_error(spool.failed, "keeping the output")
                outcome["output_lost"] = "%s; %s" % (full.message, full.hint)
            self._write_status(outcome)
            return outcome
        except OSError as error:
            raise explain_os_error(error, "running the job")
        finally:
            self.finished.set()
            for lock in self._locks:
                if lock is not None:
                    os.close(lock)

    def _prepare(self) -> str:
        """Make the job's folder, lock what the job runs in, and return its working folder."""
        try:
            make_folders(os.path.dirname(self.folder))
            os.mkdir(self.folder)
            os.chmod(self.folder, 0o755)
            write_whole(
                os.path.join(self.folder, "spec.json"), json.dumps(self.spec).encode("ascii")
            )
        except FileExistsError:
            raise AgentError("protocol", "the job %s was started before" % self.spec["job"])
        except OSError as error:
            raise explain_os_error(error, "making the job's folder")
        tree = self.spec.get("tree")
        if tree is not None:
            trees = TreeStore(self.store)
            self._locks.append(trees.lock(tree))
            if not os.path.isdir(trees.folder(tree)):
                raise AgentError("no_tree", "the tree %s is not here" % tree, "push first")
            verify_tree(trees.folder(tree), tree)
            return os.path.join(trees.folder(tree), check_relative(self.spec["subfolder"]))
        workdir = self.spec["workdir"]
        if not os.path.isdir(workdir):
            raise AgentError(
                "workdir",
                "the workdir %s does not exist here" % workdir,
                "set `workdir` to a folder as the container sees it",
            )
        self._locks.append(lock_checkout(workdir, exclusive=False))
        script = self.spec["script"]
        if not os.path.isfile(os.path.join(workdir, script)):
            raise AgentError(
                "workdir",
                "the workdir %s has no %s" % (workdir, script),
                "set `workdir` to the benchmark/ folder of an established checkout",
            )
        overlay = self.spec.get("overlay")
        return self._shadow(workdir, overlay) if overlay else str(workdir)

    def _shadow(self, workdir: str, overlay: Dict[str, Any]) -> str:
        """A private copy of the checkout with some config values replaced.

        Scripts, configs and runners are copied (a script finds its folder through its own path,
        also when that is a link), the rest is linked.
        """
        # The checkout's own name and a link for each neighbour keep `../env.sh` where it was.
        outside = os.path.join(self.folder, "shadow")
        shadow = os.path.join(outside, os.path.basename(os.path.normpath(workdir)))
        os.makedirs(shadow)
        parent = os.path.dirname(os.path.normpath(workdir))
        for name in os.listdir(parent):
            if not os.path.lexists(os.path.join(outside, name)):
                os.symlink(os.path.join(parent, name), os.path.join(outside, name))
        copied = set(self.spec.get("copied") or ())
        for name in os.listdir(workdir):
            source, target = os.path.join(workdir, name), os.path.join(shadow, name)
            if name.startswith(".mxfleet-"):
                continue
            if name in copied and os.path.isdir(source):
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            elif name.endswith(".py") and os.path.isfile(source):
                shutil.copy2(source, target)
            else:
                os.symlink(source, target)
        config = os.path.join(shadow, check_relative(overlay["path"]))
        try:
            with open(config, "rb") as stream:
                values = json.loads(stream.read().decode("utf-8"))
            values.update(overlay["values"])
        except (OSError, ValueError, AttributeError) as error:
            raise AgentError("tree", "cannot overlay %s: %s" % (overlay["path"], error))
        write_whole(config, json.dumps(values, indent=4, ensure_ascii=False).encode("utf-8"))
        return shadow

    def _supervise(
        self, words: List[str], env: Dict[str, str], cwd: str, spool: Spool
    ) -> Dict[str, Any]:
        child = spawn(
            words,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            ended = self._drain(child, spool)
            left = []  # type: List[Any]
            strays = [p for p in members(self.spec["job"], child.pid) if p.pid not in KEEP]
            if ended is not None or strays or child.poll() is None:
                left = end_tree(self.spec["job"], child.pid, self._grace(), self._grace() + 5.0)
            self._drain_rest(child, spool)
            code = child.poll()
        finally:
            KEEP.discard(child.pid)
        return {
            "ended": ended or "exited",
            "exit_code": code if code is None or code >= 0 else None,
            "signal": -code if code is not None and code < 0 else None,
            "strays": len(strays) if ended is None else 0,
            "unkillable": [{"pid": p.pid, "state": p.state} for p in left],
        }

    def _grace(self) -> float:
        return float(self.spec.get("grace") or 3.0)

    def _drain(self, child: "subprocess.Popen[bytes]", spool: Spool) -> Optional[str]:
        """Spool output until the child has ended; return why it has to be ended, or None."""
        began = last = time.monotonic()
        limit, silence = self.spec.get("timeout"), self.spec.get("silence")
        with selectors.DefaultSelector() as selector:
            for number, pipe in ((1, child.stdout), (2, child.stderr)):
                assert pipe is not None
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, selectors.EVENT_READ, number)
            exited = None  # type: Optional[float]
            while exited is None or self._ready(selector):
                if exited is None and child.poll() is not None:
                    exited = time.monotonic()
                if exited is not None and time.monotonic() - exited > STRAY_OUTPUT_SECONDS:
                    break  # something that the command left behind keeps the pipes busy
                for key, _ in selector.select(0.05 if not selector.get_map() else 0.2):
                    data = os.read(key.fd, CHUNK)
                    last = time.monotonic()
                    if data:
                        spool.append(key.data, data)
                    else:
                        selector.unregister(key.fileobj)
                if not selector.get_map():
                    time.sleep(0.01)
                now = time.monotonic()
                if self.stop_reason is not None:
                    return self.stop_reason
                if limit and now - began > limit:
                    return "timeout"
                if silence and now - last > silence:
                    return "silence"
        return None

    @staticmethod
    def _ready(selector: selectors.BaseSelector) -> bool:
        return bool(selector.get_map()) and bool(selector.select(0))

    @staticmethod
    def _drain_rest(child: "subprocess.Popen[bytes]", spool: Spool) -> None:
        """Take what is left in the pipes; whoever could have held them open is dead."""
        for number, pipe in ((1, child.stdout), (2, child.stderr)):
            assert pipe is not None
            while True:
                try:
                    data = os.read(pipe.fileno(), CHUNK)
                except (BlockingIOError, ValueError):
                    break
                if not data:
                    break
                spool.append(number, data)
            pipe.close()

    @staticmethod
    def _send(spool: Spool, data: Callable[[bytes], None]) -> None:
        try:
            for part in spool.follow(0):
                data(part)
        except OSError as error:
            # The link is gone; the spool keeps everything and the lease decides on the job.
            sys.stderr.write("mxfleet-agent: cannot send output: %s\n" % error)

    def _write_status(self, outcome: Dict[str, Any]) -> None:
        try:
            write_whole(
                os.path.join(self.folder, "status.json"), json.dumps(outcome).encode("ascii")
            )
        except OSError as error:
            outcome["status_lost"] = str(error)
