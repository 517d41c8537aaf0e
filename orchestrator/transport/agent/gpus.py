"""Which GPUs there are, as the vendors' own tools tell: index, UUID, PCI bus id, name.

Asked of the tool and not of torch, which would take seconds and touch the device. Where
``nvidia-smi`` is not to be had (a container without the driver's utilities), the driver's folder
in /proc tells the same.
"""

import os
import re
import subprocess
from typing import Any, Dict, List, Optional, Tuple

from .files import find_program
from .proc import ask

TOOL_SECONDS = 20.0  # a driver without persistence takes its time to wake up
NVIDIA_PROC = "/proc/driver/nvidia/gpus"

_PCI = re.compile(r"^(?:([0-9a-f]{1,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])$", re.IGNORECASE)
_PCI_WITHIN = re.compile(r"\b(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b", re.IGNORECASE)
_UUID = re.compile(r"\bGPU-[0-9a-fA-F]+(?:-[0-9a-fA-F]+)+\b")


def normal_pci(text: str) -> Optional[str]:
    """A PCI bus id as the kernel writes it (0000:3b:00.0), None for what is none."""
    found = _PCI.match(text.strip())
    if found is None:
        return None
    domain, bus, device, function = found.groups()
    return "%04x:%s:%s.%s" % (int(domain or "0", 16), bus.lower(), device.lower(), function)


def gpus() -> Dict[str, Any]:
    """``gpus``: a list of index, uuid, pci, name, vendor; ``problems``: what hid some of them."""
    problems = []
    found: List[Dict[str, Any]] = []
    for tool, look in (("nvidia-smi", _nvidia), ("mx-smi", _metax)):
        path = find_program(tool, os.environ.get("PATH", os.defpath))
        if path is not None:
            told, problem = look(path)
            found += told
            if problem is not None:
                problems.append("%s: %s" % (tool, problem))
    if not any(gpu["vendor"] == "nvidia" for gpu in found):
        found += nvidia_of_driver(NVIDIA_PROC)
    return {"gpus": found, "problems": problems}


def _ask(words: List[str]) -> Tuple[str, Optional[str]]:
    """What a tool prints, and why that is not all."""
    try:
        code, output = ask(words, TOOL_SECONDS, subprocess.STDOUT)
    except subprocess.TimeoutExpired:
        return "", "did not answer within %d s" % TOOL_SECONDS
    except OSError as error:
        return "", str(error)
    said = output.decode("utf-8", "replace")
    if code:
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        return said, lines[-1] if lines else "ended with status %d" % code
    return said, None


def _gpu(index: str, uuid: Optional[str], pci: str, name: str, vendor: str) -> Dict[str, Any]:
    return {
        "index": int(index),
        "uuid": uuid,
        "pci": normal_pci(pci),
        "name": name.strip(),
        "vendor": vendor,
    }


def _nvidia(tool: str) -> Tuple[List[Dict[str, Any]], Optional[str]]:
    fields = "--query-gpu=index,uuid,pci.bus_id,name"
    said, problem = _ask([tool, fields, "--format=csv,noheader"])
    found = []
    for line in said.splitlines():
        # A name may hold the separator; what is no such line (a warning) is left out.
        cells = [cell.strip() for cell in line.split(",", 3)]
        if len(cells) == 4 and cells[0].isdigit() and normal_pci(cells[2]) is not None:
            uuid = cells[1] if cells[1].startswith("GPU-") else None
            found.append(_gpu(cells[0], uuid, cells[2], cells[3], "nvidia"))
    if problem is not None and "no devices were found" in problem.lower():
        problem = None
    return found, problem


def nvidia_of_driver(folder: str) -> List[Dict[str, Any]]:
    """The same from the driver's folder in /proc; in PCI order, as the indices are by default."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    found: List[Dict[str, Any]] = []
    for name in names:
        try:
            with open(os.path.join(folder, name, "information")) as stream:
                pairs = [line.partition(":") for line in stream]
        except OSError:
            continue
        told = {key.strip(): value.strip() for key, _, value in pairs}
        pci = normal_pci(told.get("Bus Location", name))
        if pci is not None:
            # "GPU-????…" before the driver has woken the device up.
            uuid = _UUID.search(told.get("GPU UUID", ""))
            uuid_text = None if uuid is None else uuid.group()
            found.append(_gpu(str(len(found)), uuid_text, pci, told.get("Model", "GPU"), "nvidia"))
    return found


def _metax(tool: str) -> Tuple[List[Dict[str, Any]], Optional[str]]:
    """MetaX GPUs, from the list and, where that gives none, from the table of all.  # inferred

    Both carry the bus id in the usual form; the number in front of it is the index.
    """
    problem = None
    for arguments in (["-L"], []):
        said, problem = _ask([tool] + arguments)
        found = metax_of(said)
        if found:
            return found, None
    return [], problem or "its output names no GPU that we can read"


def metax_of(said: str) -> List[Dict[str, Any]]:
    """The GPUs in what mx-smi prints, whichever of its forms it is.  # inferred

    Each line with a bus id is one GPU; its index is the first number of its own, else its place;
    its name the first word that looks like a model (C500, N260, MXC500).
    """
    found: List[Dict[str, Any]] = []
    for line in said.splitlines():
        pci = _PCI_WITHIN.search(line)
        if pci is None or normal_pci(pci.group()) in [gpu["pci"] for gpu in found]:
            continue
        before, after = line[: pci.start()], line[pci.end() :]
        index = re.search(r"(?:^|[\s|#])(\d{1,3})(?=[\s|:]|$)", before)
        model = re.search(r"\b(?:MetaX[ -]*)?(?:MX)?[A-Z]\d{3,4}[A-Z]?\b", before + " " + after)
        uuid = _UUID.search(line)
        found.append(
            _gpu(
                index.group(1) if index else str(len(found)),
                uuid.group() if uuid else None,
                pci.group(),
                model.group() if model else "MetaX",
                "metax",
            )
        )
    return found
