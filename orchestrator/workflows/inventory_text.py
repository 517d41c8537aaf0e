"""The ``inventory.yaml`` that ``mxfleet init`` writes.

In it ``# Sentence`` is a remark, and ``#key:`` a setting to switch on by removing the ``#``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

_TEXT = """\
# yaml-language-server: $schema=./inventory.schema.json
#
# The hosts that mxfleet works on, how to reach them, and where on them jobs run.
# An editor with the YAML language server completes and explains every key.
# `mxfleet hosts --check` shows what mxfleet makes of this file and who answers.
# Passwords do not belong here: use ssh-agent, or a key file (identity_file).

# Settings for every host; a group or a host overrides them.
{defaults}

# Named sets of hosts, for `--hosts @c500` and for settings of their own.
#groups:
#  c500:
#    hosts: c500-[01-08]
#    model: C500
#  lab:
#    hosts: "@c500!c500-03,h200"

hosts:
{local}
{hosts}"""

_DEFAULTS = """\
{head}
#  container: vllm-dsv4                  # a running container, or none
#  python: /opt/conda/bin/python
#  path: [/opt/conda/bin]                # appended to PATH after the env script
#  ld_library_path: [/opt/conda/lib/python3.10/site-packages/torch/lib]
#  env: {{MACA_PATH: /opt/maca}}
#  workdir: /home/metax/mcoplib/benchmark  # only with an established checkout"""

_LOCAL = """\
  # This machine: no SSH, no container.
  local:
    transport: local
    container: none
    python: {python}
"""

_EXAMPLES = """\
  # Hosts reached through SSH; a name is what `ssh NAME` takes, ranges are expanded.
  #c500-[01-08]:
  #h200:
  #  address: 10.1.2.3
  #  user: bench
  #  docker_command: sudo -n docker
  #  gpus: [0, 1]
  #  containers:
  #    - vllm-dsv4
  #    - name: sglang
  #      python: /usr/bin/python3
"""


def inventory_text(
    *, python: str, ranges: Sequence[str] = (), ssh_config: Path | None = None
) -> str:
    """The file's text.

    With ``ranges`` (host names of an SSH configuration) they are the hosts and this machine is
    only an example; ``ssh_config`` is named where it is not the login's own configuration.
    """
    local = _LOCAL.format(python=_scalar(python))
    head = "#defaults:"
    if ssh_config is not None:
        head = f"defaults:\n  ssh_config: {_scalar(str(ssh_config))}"
    hosts = _EXAMPLES
    if ranges:
        local = re.sub(r"(?m)^  (?=[a-z ])", "  #", local)
        named = "".join(f"  {_scalar(name)}:\n" for name in ranges)
        hosts = "  # From the SSH configuration; remove what takes no part.\n" + named
    return _TEXT.format(defaults=_DEFAULTS.format(head=head), local=local, hosts=hosts)


def _scalar(text: str) -> str:
    """The text as a YAML scalar: plain where that is safe, else in quotes."""
    plain = re.fullmatch(r"[A-Za-z_/][\w./+-]*(\[[\d,/-]+\][\w.-]*)*", text, re.ASCII)
    reserved = text.lower() in ("true", "false", "null", "yes", "no", "on", "off", "y", "n")
    return text if plain and not reserved else json.dumps(text)
