"""A private copy of an established checkout with some config values replaced.

Scripts, configs and runners are copied (a script finds its folder through its own path, also when
that is a link), the rest is linked. The checkout's files are never changed for a single run.
"""

import errno
import json
import os
import shutil
from typing import Any, Dict, Sequence

from .files import AgentError, check_relative, write_whole


def make_shadow(outside: str, workdir: str, copied: Sequence[str], overlay: Dict[str, Any]) -> str:
    """Make the copy of ``workdir`` below the new folder ``outside``; return where it is.

    ``overlay`` names a config (``path``) and what to set in it (``values``). Raises ``OSError``.
    """
    workdir = os.path.realpath(workdir)
    parent, own_name = os.path.split(workdir)
    shadow = os.path.join(outside, own_name)
    os.makedirs(shadow)
    # The checkout's own name and a link for each neighbour keep `../env.sh` where it was.
    for name in os.listdir(parent):
        if name != own_name:
            os.symlink(os.path.join(parent, name), os.path.join(outside, name))
    for name in os.listdir(workdir):
        source, target = os.path.join(workdir, name), os.path.join(shadow, name)
        if name.startswith(".mxfleet-"):
            continue
        if name in copied and os.path.isdir(source):
            _copy_folder(source, target)
        elif name.endswith(".py") and os.path.isfile(source):
            shutil.copy2(source, target)
        else:
            os.symlink(source, target)
    config = os.path.join(shadow, check_relative(overlay["path"]))
    try:
        with open(config, "rb") as stream:
            values = json.loads(stream.read().decode("utf-8"))
        values.update(overlay["values"])
    except FileNotFoundError:
        raise AgentError("tree", "%s has no %s" % (workdir, overlay["path"]), "push it first")
    except (ValueError, AttributeError) as error:
        raise AgentError(
            "tree",
            "cannot read %s: %s" % (os.path.join(workdir, overlay["path"]), error),
            "push a good one",
        )
    text = json.dumps(values, indent=4, ensure_ascii=False)
    write_whole(config, text.encode("utf-8", "surrogateescape"))
    return shadow


def _copy_folder(source: str, target: str) -> None:
    try:
        shutil.copytree(
            source,
            target,
            ignore=shutil.ignore_patterns("__pycache__"),
            ignore_dangling_symlinks=True,
        )
    except shutil.Error as error:
        # It goes on after a failure and keeps only texts of what happened.
        code = errno.ENOSPC if os.strerror(errno.ENOSPC) in str(error) else errno.EIO
        raise OSError(code, os.strerror(code), target)
