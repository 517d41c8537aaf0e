"""Which targets a pattern selects, and what is said when it selects none."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import ExitCode, UsageError
from orchestrator.inventory.load import load
from orchestrator.inventory.nodeset import NodeSetError, count, evaluate, expand, fold, split
from orchestrator.inventory.select import select

FLEET = """\
groups:
  c500: {hosts: "c500-[01-04]"}
  odd: {hosts: "c500-[01,03],h200"}
  nvidia: {hosts: h200}
hosts:
  c500-[01-03]: {container: vllm-dsv4}
  c500-04: {containers: [vllm-dsv4, sglang]}
  h200: {containers: [none, sglang]}
  box:
"""

C = ["c500-01", "c500-02", "c500-03"]
C4 = ["c500-04:vllm-dsv4", "c500-04:sglang"]
H = ["h200:none", "h200:sglang"]


@pytest.fixture
def fleet(loaded):
    return loaded(FLEET)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (None, [*C, *C4, *H, "box"]),
        ("box", ["box"]),
        ("box,c500-02", ["c500-02", "box"]),  # in the order of the inventory
        (" box , c500-02 ", ["c500-02", "box"]),
        ("box,box", ["box"]),
        ("c500-[01-02]", C[:2]),
        ("c500-[01-04]", [*C, *C4]),
        ("c500-[01-03/2]", ["c500-01", "c500-03"]),
        ("@c500", [*C, *C4]),
        ("@all", [*C, *C4, *H, "box"]),
        ("@*", [*C, *C4, *H, "box"]),
        # The host itself, also where the file only lists containers; only where it is asked for.
        ("c500-01:none", ["c500-01:none"]),
        ("c500-[03-04]:none,c500-04", ["c500-03:none", *C4, "c500-04:none"]),
        ("@odd:none", ["c500-01:none", "c500-03:none", "h200:none"]),
        ("@all:none!@c500:none", ["h200:none", "box"]),
        ("!c500-01:none&c500-01", ["c500-01"]),
        ("@c500&@odd", ["c500-01", "c500-03"]),
        ("@c500!@odd", ["c500-02", *C4]),
        ("@c500^@odd", ["c500-02", *C4, *H]),
        ("!@c500", [*H, "box"]),
        ("!@c500,c500-01", ["c500-01", *H, "box"]),
        ("box,c500-01&@c500", ["c500-01"]),  # left to right, no precedence
        ("c500-04:sglang", ["c500-04:sglang"]),
        ("c500-01:vllm-dsv4", ["c500-01"]),
        ("c500-[01-04]:vllm-dsv4", [*C, "c500-04:vllm-dsv4"]),
        ("@c500:sglang", ["c500-04:sglang"]),  # of a group those that have it
        ("@all:sglang", ["c500-04:sglang", "h200:sglang"]),
        ("h200:none", ["h200:none"]),
        ("box:none", ["box"]),
        ("@c500!c500-04:sglang", [*C, "c500-04:vllm-dsv4"]),
        ("@nvidia,box!h200:none", ["h200:sglang", "box"]),
    ],
)
def test_selects(fleet, pattern, names):
    assert [target.name for target in select(fleet, pattern)] == names


@pytest.mark.parametrize(
    ("pattern", "part"),
    [
        ("", "names no host"),
        ("  ", "names no host"),
        (",", "a name is missing"),
        ("box,", "a name is missing"),
        (",box", "a name is missing"),
        ("box,,h200", "a name is missing"),
        ("!", "a name is missing"),
        ("box&", "a name is missing"),
        ("box h200", "separated with a comma"),
        ("boxx", 'unknown host "boxx", did you mean "box"?'),
        ("c500-9", 'unknown host "c500-9", did you mean "c500-0'),
        ("c500-[01-09]", 'unknown host "c500-05"'),
        ("zzz", 'unknown host "zzz"; known: box, c500-01'),
        ("c500", '"c500" is a group; write it as @c500'),
        ("@c550", 'unknown group "@c550", did you mean "@c500"?'),
        ("@c500-04", 'unknown group "@c500-04", did you mean "@c500"?'),
        ("@bx", 'unknown group "@bx", did you mean "box"?'),  # only a host is near
        ("nvdia", 'unknown host "nvdia", did you mean "@nvidia"?'),  # only a group is near
        ("@zzz", "known: @c500, @nvidia, @odd"),
        ("@", "unknown group"),
        ("h200:sglnag", 'unknown container "sglnag", did you mean "sglang"?'),
        ("c500-[01-04]:sglang", "c500-01: unknown container"),
        ("c500-01:nine", 'unknown container "nine", did you mean "none"?'),
        ("c500-01&c500-01:none", "selects no target"),
        ("zzz:none", "unknown host"),
        ("box:vllm-dsv4", 'unknown container "vllm-dsv4"; known: none'),
        (":sglang", "missing before the colon"),
        ("h200:", "missing after the colon"),
        ("h200:a:b", "unknown container"),
        ("box&h200", '"box&h200" selects no target'),
        ("!@all", "selects no target"),
        ("x[1-99999999]", "more than 20000 names"),
        ("@g[1-99999999]", "more than 20000 names"),
        ("h200:x[1-99999999]", "more than 20000 names"),
        ("c500-[1-", "never closed"),
        ("c500-]1[", "do not match"),
        ("c500-[[1]]", "do not match"),
        ("c500-[x]", "is not a range"),
        ("größe", "unknown host"),
        ("$(reboot)", "unknown host"),
        ("\x00", "unknown host"),
        ("x" * 10_000, "unknown host"),
        ("a," * 50_000 + "a", "unknown host"),
    ],
)
def test_selects_nothing(fleet, pattern, part):
    with pytest.raises(UsageError) as caught:
        select(fleet, pattern)
    said = str(caught.value)
    assert part in said and len(said) < 300 and said.isprintable()
    assert caught.value.code == ExitCode.USAGE


def test_the_host_itself_has_the_settings_of_its_host(loaded):
    inventory = loaded(
        """\
        defaults: {container: vllm-dsv4, workdir: /w, path: [/d]}
        hosts:
          a: {python: py, containers: [xx, {name: yy, python: other, path: []}]}
          b: {env: {X: 1}}
        """
    )
    a, b = select(inventory, "@all:none")
    assert (a.name, a.container, a.python, a.workdir, a.path) == (
        "a:none",
        None,
        "py",
        "/w",
        ("/d",),
    )
    assert (b.name, b.container, b.env) == ("b:none", None, {"X": "1"})
    assert [target.name for target in select(inventory)] == ["a:xx", "a:yy", "b"]


def test_groups_of_the_machine_are_not_read(inventory_file, tmp_path):
    """A ClusterShell configuration of the user neither adds groups nor changes ours."""
    path = inventory_file(FLEET)
    config = tmp_path / "clustershell"
    config.mkdir()
    (config / "groups.conf").write_text(
        "[Main]\ndefault: mine\n[mine]\nmap: echo box\nall: echo box\nlist: echo theirs\n"
    )
    code = (
        "import sys; from pathlib import Path\n"
        "from orchestrator.inventory.load import load\n"
        "from orchestrator.inventory.select import select\n"
        "inventory = load(Path(sys.argv[1]))\n"
        "print([t.name for t in select(inventory, '@nvidia,c500-[01-02]')])\n"
        "try: select(inventory, '@theirs')\n"
        "except Exception as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "CLUSTERSHELL_CFGDIR": str(config)},
    )
    selected, refused = done.stdout.splitlines()
    assert selected == "['c500-01', 'c500-02', 'h200:none', 'h200:sglang']"
    assert refused.startswith('unknown group "@theirs"')


names = st.lists(st.sampled_from(["a1", "a2", "a10", "a02", "b1-x", "b2-x", "c", "r1n1", "r1n2"]))
patterns = st.lists(
    st.tuples(st.sampled_from(",&!^"), st.sampled_from(["n1", "n[1-3]", "n[2-5/2]", "n4,n5"])),
    min_size=1,
)


@given(patterns)
def test_algebra_is_that_of_clustershell(parts):
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    pattern = "".join(f"{operator}{text}" for operator, text in parts)[1:]
    everything = {f"n{i}" for i in range(9)}
    ours = evaluate(pattern, lambda text: set(expand(text)), everything)
    assert ours == set(NodeSet(pattern, resolver=RESOLVER_NOGROUP))


@given(names)
def test_folding_loses_nothing(hosts):
    folded = fold(hosts)
    assert sorted(name for part in folded for name in expand(part)) == sorted(set(hosts))
    assert len(folded) <= len(set(hosts))


@given(st.from_regex(r"[a-z]{1,2}(\[[0-9]{1,2}-[0-9]{1,2}(/[1-3])?\][a-z]?){1,2}", fullmatch=True))
def test_count_is_what_expansion_gives(name):
    try:
        expanded = expand(name)
    except NodeSetError:
        return
    assert count(name) == len(expanded)


@given(st.text(alphabet="ab1,&!^@:[]-/ *", max_size=20))
def test_any_text_is_a_selection_or_a_usage_error(text):
    try:
        assert split(text)
    except NodeSetError as error:
        assert str(error)


@given(pattern=st.text(alphabet="box h20:c,&!^@[]-/1*", max_size=15))
def test_select_raises_nothing_else(tmp_path_factory, pattern):
    path = tmp_path_factory.getbasetemp() / "fleet.yaml"
    if not path.exists():
        path.write_text(FLEET)
    try:
        assert select(load(path), pattern)
    except UsageError as error:
        assert re.search(r"\S", str(error))
