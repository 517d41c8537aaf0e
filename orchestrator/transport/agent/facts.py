"""What a target is: its python and what that python can import, devices, disk, clock.

The questions about packages are asked of the job's own python after its env script, in a process
of its own: importing torch into the agent would take seconds and could touch the device.
"""

import json
import os
import platform
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from typing import Any, Dict, List, Optional

from .files import AgentError, disk_of
from .proc import ask, end_tree, release, spawn
from .shell import Told, refusal, shell_command

PROBE_SECONDS = 90.0
SMI_SECONDS = 10.0

# Runs on the job's python, whatever its version; prints one JSON line after a mark.
PROBE = r"""
import json, sys
facts = {"version": "%d.%d.%d" % sys.version_info[:3], "executable": sys.executable}
try:
    from importlib import metadata
    from importlib.util import find_spec
except ImportError:
    metadata = find_spec = None
def version(name):
    try:
        return metadata.version(name)
    except Exception:
        return None
if metadata:
    facts["nvbench"] = [{"package": n, "version": version(n)}
                        for n in ("cuda-bench", "mxbench") if version(n)]
    facts["libraries"] = {}
    for name in (
        "mcoplib", "sgl_kernel", "vllm", "flashinfer", "flash_attn", "halops", "deep_gemm"
    ):
        try:
            found = find_spec(name)
        except Exception:
            found = None
        if found is not None:
            facts["libraries"][name] = version(name) or version(name.replace("_", "-"))
try:
    import torch
    facts["torch"] = {"version": torch.__version__, "cuda": torch.version.cuda}
    devices = []
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            found = torch.cuda.get_device_properties(index)
            uuid = getattr(found, "uuid", None)
            devices.append({"index": index, "name": found.name, "memory": found.total_memory,
                            "uuid": None if uuid is None else "GPU-%s" % uuid})
    facts["devices"] = devices
except Exception as error:
    facts["torch"] = None
    facts["torch_error"] = "%s: %s" % (type(error).__name__, error)
sys.stdout.write("\nmxfleet-facts:" + json.dumps(facts) + "\n")
"""


def gather(spec: Dict[str, Any], store: str) -> Dict[str, Any]:
    """All facts of a target; what could not be learned is in ``problems``, one sentence each."""
    facts: Dict[str, Any] = {
        "host": socket.gethostname(),
        "system": "%s %s %s" % (platform.system(), platform.release(), platform.machine()),
        "user": pwd.getpwuid(os.geteuid()).pw_name if _known_user() else str(os.geteuid()),
        "agent_python": platform.python_version(),
        "clock": time.time(),
        "store": {"path": store, "disk": disk_of(store)},
        "gpu_processes": _gpu_processes(),
        "problems": [],
    }
    cwd = spec.get("workdir")
    if cwd is not None:
        if os.path.isdir(cwd):
            facts["workdir"] = {
                "path": cwd,
                "writable": os.access(cwd, os.W_OK),
                "established": os.path.isfile(os.path.join(cwd, spec["script"])),
                "disk": disk_of(cwd),
            }
        else:
            facts["problems"].append("the workdir %s does not exist here" % cwd)
            cwd = None
    if cwd is None:
        # The env script of a tree comes with the tree: before a push there is none to source.
        spec = dict(spec, env_script=None)
        cwd = store
    try:
        answer = _ask_python(spec, cwd)
        facts["problems"] += answer.pop("problems")
        facts.update(answer)
    except AgentError as error:
        facts["problems"].append(error.message + ("; " + error.hint if error.hint else ""))
    return facts


def _gpu_processes() -> Optional[List[Dict[str, str]]]:
    """Who computes on the GPUs as nvidia-smi sees it; None where it is not or does not answer."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    fields = "gpu_uuid,pid,process_name,used_memory"
    words = [tool, "--query-compute-apps=" + fields, "--format=csv,noheader"]
    try:
        code, said = ask(words, SMI_SECONDS, subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError):
        return None
    if code:
        return None
    lines = said.decode("utf-8", "replace").splitlines()
    rows = [line.split(", ") for line in lines if line.strip()]
    # A process name may hold the separator: the ends are what they are.
    return [
        {"gpu": row[0], "pid": row[1], "name": ", ".join(row[2:-1]), "memory": row[-1]}
        for row in rows
        if len(row) >= 4
    ]


def _known_user() -> bool:
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return True


def _ask_python(spec: Dict[str, Any], cwd: str) -> Dict[str, Any]:
    folder = tempfile.mkdtemp(prefix="mxfleet-facts-")
    told = Told()
    try:
        cookie = os.path.basename(folder)
        asked = dict(spec, job=cookie, argv=["-c", PROBE])
        words, env = shell_command(asked, cwd, folder, told)
        said = os.path.join(folder, "output")
        # A file: what the env script leaves running may hold a pipe open for good.
        with open(said, "wb") as stream:
            child = spawn(
                words,
                cookie,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                pass_fds=(told.child_end,),
            )
        try:
            child.wait(PROBE_SECONDS)
        except subprocess.TimeoutExpired:
            raise AgentError(
                "python", "%s did not answer within %d s" % (spec["python"], PROBE_SECONDS)
            )
        finally:
            end_tree((cookie,), child, 0.5, 3.0)
            release(child, cookie)
        with open(said, "rb") as stream:
            output = stream.read().decode("utf-8", "replace")
        refused = refusal(told.words(), asked, cwd)
        if refused is not None:
            raise refused
    finally:
        told.close()
        shutil.rmtree(folder, ignore_errors=True)
    answer = output.rpartition("\nmxfleet-facts:")[2].split("\n")[0]
    try:
        value = json.loads(answer)
    except ValueError:
        lines: List[str] = [line for line in output.splitlines() if line.strip()]
        raise AgentError("python", "%s failed: %s" % (spec["python"], (lines or ["no output"])[-1]))
    devices = value.pop("devices", None)
    problems = []
    if value.get("torch") is None:
        problems.append("torch cannot be imported: %s" % value.pop("torch_error", "unknown"))
    return {"python": value, "devices": devices, "problems": problems}
