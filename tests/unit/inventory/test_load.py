"""What an inventory means: defaults, precedence, ranges, containers, values as written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.errors import ConfigError
from orchestrator.inventory.find import find_inventory
from orchestrator.inventory.load import load
from orchestrator.inventory.model import Host, PushSettings, SuiteSettings, Target, Timeouts
from orchestrator.inventory.select import select


def test_nothing_said_gives_the_defaults(loaded):
    inventory = loaded("hosts:\n  gpu1:\n")
    host = Host("gpu1")
    assert inventory.hosts == {"gpu1": host}
    assert inventory.targets == (Target("gpu1", host, env_script="../env/env.sh"),)
    assert inventory.groups == {}
    assert inventory.folder == inventory.path.parent and inventory.path.is_absolute()


def test_every_key_arrives_in_its_place(loaded, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    inventory = loaded(
        """\
        hosts:
          c500:
            transport: openssh
            address: 10.1.2.3
            port: 2222
            user: metax
            identity_file: ~/.ssh/fleet
            ssh_config: ssh/config
            host_keys: strict
            connect_timeout: 2.5
            host_python: [/usr/bin/python3.6, python]
            options: {Compression: yes, ServerAliveInterval: 5}
            container: vllm-dsv4
            workdir: /home/metax/mcoplib/benchmark/
            store: /data/mxfleet
            env_script: ../../env.sh
            python: /opt/conda/bin/python
            env: {MACA_PATH: /opt/maca}
            path: [/opt/conda/bin]
            ld_library_path: [/opt/conda/lib/python3.10/site-packages/torch/lib]
            docker_command: sudo -n docker
            docker_user: 1000
            gpus: [0, GPU-1f, "0000:3b:00.0"]
            model: C500
            timeouts: {silence: 60, job: none, run: 7200, dead_link: 5}
            suites:
              halops: {workdir: /halops, sync: [configs], results: ["out/**/*.csv"]}
        """
    )
    host = Host(
        name="c500",
        transport="openssh",
        address="10.1.2.3",
        port=2222,
        user="metax",
        identity_file=Path("/home/me/.ssh/fleet"),
        ssh_config=inventory.folder / "ssh/config",
        host_keys="strict",
        connect_timeout=2.5,
        python=("/usr/bin/python3.6", "python"),
        options={"Compression": "yes", "ServerAliveInterval": "5"},
    )
    assert select(inventory) == (
        Target(
            name="c500",
            host=host,
            container="vllm-dsv4",
            workdir="/home/metax/mcoplib/benchmark",
            store="/data/mxfleet",
            env_script="../../env.sh",
            python="/opt/conda/bin/python",
            env={"MACA_PATH": "/opt/maca"},
            path=("/opt/conda/bin",),
            ld_library_path=("/opt/conda/lib/python3.10/site-packages/torch/lib",),
            docker_command=("sudo", "-n", "docker"),
            docker_user="1000",
            gpus=("0", "GPU-1f", "0000:3b:00.0"),
            model="C500",
            timeouts=Timeouts(silence=60.0, job=None, run=7200.0, dead_link=5.0),
            suites={"halops": SuiteSettings("/halops", ("configs",), ("out/**/*.csv",))},
        ),
    )
    assert inventory.targets[0].established


PRECEDENCE = """\
    defaults:
      {python: default, path: [/d], env: {A: default, D: default}, timeouts: {job: 1, run: 1}}
    groups:
      last: {hosts: "a,b", python: last, env: {A: last, L: last}}
      first: {hosts: "a", python: first, path: [/f1, /f2], env: {A: first}, timeouts: {job: 2}}
    hosts:
      c:
      b:
      a:
        env: {H: host}
        containers:
          - one
          - {name: two, python: two, env: {A: two}, path: [], timeouts: {job: none}}
"""


@pytest.mark.parametrize(
    ("target", "python", "path", "env", "job"),
    [
        ("c", "default", ("/d",), {"A": "default", "D": "default"}, 1.0),
        ("b", "last", ("/d",), {"A": "last", "D": "default", "L": "last"}, 1.0),
        # `first` stands further down than `last`: it counts.
        (
            "a:one",
            "first",
            ("/f1", "/f2"),
            {"A": "first", "D": "default", "L": "last", "H": "host"},
            2.0,
        ),
        ("a:two", "two", (), {"A": "two", "D": "default", "L": "last", "H": "host"}, None),
    ],
)
def test_nearest_wins_maps_merge_lists_replace(loaded, target, python, path, env, job):
    found = {item.name: item for item in loaded(PRECEDENCE).targets}[target]
    assert (found.python, found.path, dict(found.env)) == (python, path, env)
    assert (found.timeouts.job, found.timeouts.run) == (job, 1.0)


@pytest.mark.parametrize(
    ("hosts", "names"),
    [
        ("b: {}\n  a:", ["b", "a"]),
        ("c500-[01-03]:", ["c500-01", "c500-02", "c500-03"]),
        ("c[1,3-5]-gpu:", ["c1-gpu", "c3-gpu", "c4-gpu", "c5-gpu"]),
        ("r[1-2]n[1-2]:", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("a,b:", ["a", "b"]),
        ("on:\n  yes:", ["on", "yes"]),
        ("'10':", ["10"]),
        ("10.0.0.[1-2]:", ["10.0.0.1", "10.0.0.2"]),
        ("a: {container: none}", ["a"]),
        ("a: {containers: [xx]}", ["a"]),
        ("a: {containers: [none, xx]}", ["a:none", "a:xx"]),
        ("a[1-2]: {containers: [xx, yy]}", ["a1:xx", "a1:yy", "a2:xx", "a2:yy"]),
    ],
)
def test_target_names(loaded, hosts, names):
    assert [target.name for target in select(loaded(f"hosts:\n  {hosts}\n"))] == names


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("{}", "../env/env.sh"),
        ("{workdir: /x}", "../env.sh"),
        ("{workdir: none}", "../env/env.sh"),
        ("{env_script: none}", None),
        ("{workdir: /x, env_script: none}", None),
        ("{env_script: /opt/env.sh}", "/opt/env.sh"),
    ],
)
def test_env_script(loaded, settings, expected):
    assert loaded(f"hosts: {{a: {settings}}}").targets[0].env_script == expected


def test_a_nearer_container_replaces_containers_and_the_reverse(loaded):
    inventory = loaded(
        """\
        defaults: {containers: [xx, yy], workdir: /w}
        groups: {g: {hosts: b, containers: [zz]}}
        hosts: {a: {container: none, workdir: none}, b: , c: }
        """
    )
    assert [(target.name, target.container, target.workdir) for target in select(inventory)] == [
        ("a", None, None),
        ("b", "zz", "/w"),
        ("c:xx", "xx", "/w"),
        ("c:yy", "yy", "/w"),
    ]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1.10", "1.10"),
        ("007", "007"),
        ("0x1F", "0x1F"),
        ("1_000", "1_000"),
        ("1e3", "1e3"),
        (".inf", ".inf"),
        ("9" * 5000, "9" * 5000),
        ("2026-11-30", "2026-11-30"),
        ("yes", "yes"),
        ("off", "off"),
        ("'true'", "true"),
        ("''", ""),
        ('"two\\nlines"', "two\nlines"),
        ("中文", "中文"),
        ('"a b;$(reboot)\'\\""', "a b;$(reboot)'\""),
    ],
)
def test_env_values_arrive_as_written(loaded, written, value):
    inventory = loaded(f"hosts: {{a: {{env: {{X: {written}}}}}}}")
    assert inventory.targets[0].env == {"X": value}


def test_groups_hold_hosts_in_the_order_of_the_file(loaded):
    inventory = loaded(
        """\
        groups:
          every: {hosts: "@all"}
          odd: {hosts: [n3, n1]}
          even: {hosts: "@every!@odd"}
          both: {hosts: "@odd&n[1-2]"}
          nobody: {hosts: "n1&n2"}
        hosts: {"n[1-4]": }
        """
    )
    assert inventory.groups == {
        "every": ("n1", "n2", "n3", "n4"),
        "odd": ("n1", "n3"),
        "even": ("n2", "n4"),
        "both": ("n1",),
        "nobody": (),
    }


@pytest.mark.parametrize("section", ["", "hosts:\n", "hosts: {}\n"])
@pytest.mark.parametrize(
    ("groups", "hosts"),
    [
        ({"g": "n-[01-03]"}, ["n-01", "n-02", "n-03"]),
        ({"g": "n[1-2]", "h": "[m, n2, k]"}, ["n1", "n2", "m", "k"]),  # as they are written
        ({"g": "n[1-4]!n3"}, ["n1", "n2", "n4"]),
        ({"g": "n[1-4]!n3", "h": "'@all'", "i": "'!n1'"}, ["n1", "n2", "n4"]),
        ({"g": "n[1-4]&n[2-3]"}, ["n2", "n3"]),
        ({"g": "n1^n2", "h": "'@g,n3'"}, ["n1", "n2", "n3"]),
    ],
)
def test_without_a_hosts_section_the_hosts_are_those_of_the_groups(loaded, section, groups, hosts):
    lines = "".join(f"  {name}: {{hosts: {_quoted(text)}}}\n" for name, text in groups.items())
    inventory = loaded(f"defaults: {{python: py}}\n{section}groups:\n{lines}")
    assert list(inventory.hosts) == hosts
    assert {target.python for target in inventory.targets} == {"py"}
    for group, expected in {"h": {"'@all'": hosts}, "i": {"'!n1'": hosts[1:]}}.items():
        if groups.get(group) in expected:
            assert inventory.groups[group] == tuple(expected[groups[group]])


def _quoted(text: str) -> str:
    return text if text[0] in "['" else f'"{text}"'


def test_settings_of_groups_reach_hosts_that_only_groups_name(loaded):
    inventory = loaded(
        """\
        groups:
          c500: {hosts: "c500-[01-02]", model: C500, container: vllm-dsv4}
          two: {hosts: c500-02, container: sglang}
        """
    )
    assert [(target.model, target.container) for target in select(inventory)] == [
        ("C500", "vllm-dsv4"),
        ("C500", "sglang"),
    ]


def test_push_settings(loaded):
    assert loaded("hosts: {a: }").push == PushSettings()
    inventory = loaded("push: {exclude: ['*.log', 1.10], symlinks: follow}\nhosts: {a: }")
    assert inventory.push == PushSettings(("*.log", "1.10"), "follow")


def test_anchors_and_merge_keys(loaded):
    inventory = loaded(
        """\
        hosts:
          a: &base {python: py, env: {X: 1}}
          b: {<<: *base, python: other}
          c: *base
          d: {<<: [{user: me}, *base]}
        """
    )
    assert [(target.python, target.env.get("X")) for target in inventory.targets] == [
        ("py", "1"),
        ("other", "1"),
        ("py", "1"),
        ("py", "1"),
    ]
    assert inventory.hosts["d"].user == "me"


def test_windows_line_ends_and_byte_order_mark(tmp_path):
    path = tmp_path / "inventory.yaml"
    path.write_bytes(b"\xef\xbb\xbfhosts:\r\n  a:\r\n    user: me\r\n")
    assert load(path).hosts["a"].user == "me"


def test_find_inventory(tmp_path, monkeypatch):
    monkeypatch.delenv("MXFLEET_INVENTORY", raising=False)
    deep = tmp_path / "work" / "a" / "b"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    with pytest.raises(ConfigError, match="mxfleet init"):
        find_inventory()
    upper = tmp_path / "work" / "inventory.yaml"
    upper.touch()
    assert find_inventory() == upper
    (deep.parent / "inventory.yaml").mkdir()  # a folder of that name is none
    assert find_inventory() == upper
    assert find_inventory(start=tmp_path / "work") == upper
    monkeypatch.setenv("MXFLEET_INVENTORY", "/named/by/variable.yaml")
    assert find_inventory() == Path("/named/by/variable.yaml")
    assert find_inventory(Path("given.yaml")) == Path("given.yaml")


def test_heavy_imports_wait(loaded):
    """Importing the package costs nothing; plain names never load ClusterShell."""
    path = loaded("hosts: {a: , b: }").path
    code = (
        "import sys, json; import orchestrator.inventory, orchestrator.inventory.model\n"
        "first = [m for m in ('pydantic', 'ruamel', 'ClusterShell') if m in sys.modules]\n"
        "from pathlib import Path; from orchestrator.inventory.load import load\n"
        "from orchestrator.inventory.select import select\n"
        "select(load(Path(sys.argv[1])), 'a,b')\n"
        "print(json.dumps([first, 'ClusterShell' in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [[], False]


def test_peaks_merge_key_by_key(loaded):
    found = loaded(
        """
        defaults:
          gpu_specs:
            C600: {bandwidth: 2e12, flops: {bfloat16: 3.0e+14}}
        hosts:
          a:
            gpu_specs:
              C600: {flops: {int8: 600000000000000}, source: a sheet}
              X1: {bandwidth: 1.0e+12}
          b:
        """
    )
    a, b = found.targets
    assert a.gpu_specs == {
        "C600": {"bandwidth": 2e12, "flops": {"bfloat16": 3e14, "int8": 6e14}, "source": "a sheet"},
        "X1": {"bandwidth": 1e12},
    }
    assert b.gpu_specs == {"C600": {"bandwidth": 2e12, "flops": {"bfloat16": 3e14}}}


def test_libraries_are_one_or_a_list_and_the_nearest_counts(loaded):
    found = loaded(
        """
        defaults: {library: mcoplib}
        hosts:
          a: {library: [vllm, "sgl_kernel=/opt/a b/common_ops.so"]}
          b:
          c: {library: []}
        """
    )
    assert {target.name: target.library for target in found.targets} == {
        "a": ("vllm", "sgl_kernel=/opt/a b/common_ops.so"),
        "b": ("mcoplib",),
        "c": (),
    }
