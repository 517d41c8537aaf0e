"""Every mistake in the file: one sentence, the line, the way out, exit code 2."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.errors import ConfigError, ExitCode
from orchestrator.inventory.load import load

BOMB = "a0: &a0 {x: 1}\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
)

# (the file, the line, what the sentence has to hold)
CASES = [
    ("", 1, "is empty"),
    ("# nothing\n", 1, "is empty"),
    ("- a\n- b\n", 1, "is not a mapping"),
    ("just text\n", 1, "is not a mapping"),
    ("hosts: {a: }\n---\nhosts: {b: }\n", 2, "another document"),
    ("hosts:\n  a: [1\nb: 2\n", 3, "not valid YAML"),
    ("hosts:\n\ta:\n", 2, "indent with spaces"),
    ("hosts:\n  a:\n    env: {X: 'y}\n", 4, "quoted scalar"),
    ("hosts:\n  a: *nowhere\n", 2, "undefined alias"),
    ("hosts:\n  a:\n    user: \x07\n", 3, "control character"),
    ("hosts:\n  a: !!python/object:os.system x\n", 2, "the tag !!python/object:os.system"),
    ("hosts:\n  a: {[x]: 1}\n", 2, "plain name"),
    ("hosts:\n  a: {<<: x}\n", 2, "`<<` takes a mapping"),
    ("[" * 20000, 1, "nested too deeply"),
    (BOMB, 1, "expands to more than 200000 values"),
    ("hosts: &h {a: {env: *h}}\n", 1, "nested too deeply"),
    # names
    ("hosts:\n  a:\n  b:\n  a:\n", 4, 'the key "a" stands twice; it already stands in line 2'),
    ("hosts:\n  n[1-3]:\n  n2:\n", 3, 'the host "n2" stands twice'),
    ("hosts:\n  10:\n", 2, 'the key 10 is read as a number, not as a name; put it in quotes: "10"'),
    ("hosts:\n  true:\n", 2, "is read as a truth value"),
    ("hosts:\n  ~:\n", 2, "is read as nothing"),
    ("hosts:\n  größe:\n", 2, "cannot be a host's name"),
    ("hosts:\n  -oProxyCommand=x:\n", 2, "cannot be a host's name"),
    ("hosts:\n  me@gpu1:\n", 2, "the login into `user:`"),
    ("hosts:\n  '':\n", 2, "a name is missing"),
    (f"hosts:\n  {'x' * 300}:\n", 2, "cannot be a host's name"),
    ("hosts:\n  '@g':\n", 2, "is a group, not a host"),
    ("hosts:\n  a!b:\n", 2, "no name or range"),
    ("hosts:\n  a b:\n", 2, "holds a space"),
    ("hosts:\n  x[1-99999999]:\n", 2, "more than 20000 names"),
    ("hosts:\n  x[1-9999][1-9999][1-9999]:\n", 2, "more than 20000 names"),
    ("hosts:\n  'x[1-999999999999999999]':\n", 2, "more than 20000 names"),
    (f"hosts:\n  x[1-{'9' * 1000}]:\n", 2, "is not a range"),
    ("hosts:\n  x[1-15000]:\n  y[1-15000]:\n", 3, "more than 20000 hosts"),
    ("hosts:\n  x[3-1]:\n", 2, "is not a range"),
    ("hosts:\n  x[01-100]:\n", 2, "is not a range"),
    ("hosts:\n  x[a-b]:\n", 2, "is not a range"),
    ("hosts:\n  x[1:\n", 2, "is never closed"),
    ("hosts:\n  x1]:\n", 2, "do not match"),
    ("hosts:\n  x[]:\n", 2, "is not a range"),
    # keys
    ("hosts:\n  a:\n    contaner: x\n", 3, 'unknown key "contaner", did you mean "container"?'),
    ("hosts:\n  a:\n    zzzz: x\n", 3, 'unknown key "zzzz"; known: address'),
    ("defualts: {}\nhosts: {a: }\n", 1, 'did you mean "defaults"?'),
    ("groups:\n  g:\n    host: a\nhosts: {a: }\n", 3, 'did you mean "hosts"?'),
    ("host: null\n", 1, 'unknown key "host", did you mean "hosts"?'),
    ("defaults:\n  timeouts:\n    jobs: 3\nhosts: {a: }\n", 3, 'did you mean "job"?'),
    ("hosts:\n  a:\n    suites: {mcoplip: {}}\n", 3, 'did you mean "mcoplib"?'),
    ("hosts:\n  a:\n    suites: {halops: {workdri: /x}}\n", 3, 'did you mean "workdir"?'),
    ("hosts:\n  timeouts:\n    contaner: xx\n", 3, 'did you mean "container"?'),
    ("hosts:\n  a:\n    containers:\n      - {nam: x}\n", 4, 'did you mean "name"?'),
    (
        "hosts:\n  a:\n    containers:\n      - xx\n      - {name: yy, port: 3}\n",
        5,
        "belongs to the",
    ),
    ("push: {exlude: [x]}\nhosts: {a: }\n", 1, 'did you mean "exclude"?'),
    ("push: {exclude: x}\nhosts: {a: }\n", 1, "has to be a list"),
    ("push: {symlinks: folow}\nhosts: {a: }\n", 1, 'did you mean "follow"?'),
    # secrets
    ("hosts:\n  a:\n    password: x\n", 3, "use ssh-agent"),
    ("hosts:\n  a:\n    ssh_passphrase: x\n", 3, "use ssh-agent"),
    ("defaults: {token: x}\nhosts: {a: }\n", 1, "identity_file"),
    ("hosts:\n  a:\n    env:\n      HF_TOKEN: x\n", 4, "env script"),
    # values
    ("hosts:\n", 1, '"hosts" is empty'),
    ("defaults: {}\n", 1, '"hosts" is missing'),
    ("hosts: [a]\n", 1, "has to be a mapping"),
    ("hosts:\n  a: 3\n", 2, "not a number"),
    ("hosts:\n  a:\n    user:\n", 3, '"user" has no value'),
    ("hosts:\n  a:\n    user: ''\n", 3, "it is empty"),
    ("hosts:\n  a:\n    user: true\n", 3, "in quotes"),
    ("hosts:\n  a:\n    user: -l\n", 3, "starts with a dash"),
    ("hosts:\n  a:\n    address: -oProxyCommand=x\n", 3, "starts with a dash"),
    ("hosts:\n  a:\n    address: me@host\n", 3, "an @"),
    ("hosts:\n  a:\n    transport: sssh\n", 3, 'cannot be "sssh", did you mean "ssh"?'),
    ("hosts:\n  a:\n    transport: telnet\n", 3, "it can be ssh, openssh, local"),
    ("hosts:\n  a:\n    transport: scripted\n", 3, "it can be ssh, openssh, local"),
    ("hosts:\n  a:\n    port: '22'\n", 3, "from 1 to 65535"),
    ("hosts:\n  a:\n    port: 70000\n", 3, "from 1 to 65535"),
    ("hosts:\n  a:\n    port: true\n", 3, "from 1 to 65535"),
    ("hosts:\n  a:\n    connect_timeout: 5s\n", 3, "number of seconds"),
    ("hosts:\n  a:\n    connect_timeout: .nan\n", 3, "above 0"),
    ("hosts:\n  a:\n    connect_timeout: none\n", 3, "number of seconds"),
    ("hosts:\n  a:\n    timeouts: {job: -1}\n", 3, "above 0"),
    ("hosts:\n  a:\n    gpu_specs: {C600: {bandwith: 2e12}}\n", 3, 'did you mean "bandwidth"?'),
    (
        "hosts:\n  a:\n    gpu_specs: {C600: {bandwidth: 1843.2}}\n",
        3,
        "bytes or operations a second",
    ),
    ("hosts:\n  a:\n    gpu_specs: {C600: {bandwidth: .nan}}\n", 3, "bytes or operations"),
    ("hosts:\n  a:\n    gpu_specs: {C600: {bandwidth: '2e12'}}\n", 3, "has to be a number"),
    ("hosts:\n  a:\n    gpu_specs: {C600: {flops: {bfloat: 3e14}}}\n", 3, '"bfloat16"?'),
    ("hosts:\n  a:\n    gpu_specs: {C600: 3}\n", 3, "has to be a mapping"),
    ("hosts:\n  a:\n    gpu_specs: {'': {}}\n", 3, "no name of a GPU model"),
    ("hosts:\n  a:\n    library: vlm\n", 3, 'item 1 cannot be "vlm": it has to be mcoplib'),
    ("hosts:\n  a:\n    library: [vllm, _C=x.so]\n", 3, "absolute path of a shared object"),
    ("hosts:\n  a:\n    library: {_C: vllm}\n", 3, "has to be a list"),
    ("hosts:\n  a:\n    options: {'x y': 1}\n", 3, "no OpenSSH option"),
    ("hosts:\n  a:\n    container: None\n", 3, "small letters"),
    ("hosts:\n  a:\n    container: a b\n", 3, "no name Docker gives"),
    ("hosts:\n  a:\n    container: -v\n", 3, "no name Docker gives"),
    ("hosts:\n  a:\n    container: 中文\n", 3, "no name Docker gives"),
    ("hosts:\n  a:\n    containers: []\n", 3, "is empty"),
    ("hosts:\n  a:\n    containers: xx\n", 3, "has to be a list"),
    ("hosts:\n  a:\n    containers:\n      - xx\n      - a b\n", 5, "no name Docker gives"),
    ("hosts:\n  a:\n    containers:\n      - xx\n      - xx\n", 5, "stands twice"),
    ("hosts:\n  a:\n    container: xx\n    containers: [yy]\n", 4, "stand side by side"),
    ("hosts:\n  a:\n    transport: local\n    port: 22\n", 4, "means nothing with"),
    ("hosts:\n  a:\n    workdir: benchmark\n", 3, "absolute path"),
    ("hosts:\n  a:\n    workdir: ~/benchmark\n", 3, "absolute path"),
    ("hosts:\n  a:\n    store: mxfleet\n", 3, "absolute path"),
    ('hosts:\n  a:\n    store: "/a\\nb"\n', 3, "line break"),
    ('hosts:\n  a:\n    python: "py\\0"\n', 3, "control character"),
    ("hosts:\n  a:\n    path: /opt/bin\n", 3, "has to be a list"),
    ("hosts:\n  a:\n    path:\n      - /a\n      - bin\n", 5, '"path", item 2 cannot be "bin"'),
    ("hosts:\n  a:\n    path: ['/a:/b']\n", 3, "holds a colon"),
    ("hosts:\n  a:\n    gpus: ['--all']\n", 3, "neither a GPU index"),
    ("hosts:\n  a:\n    docker_command: sudo 'x\n", 3, "quotes do not match"),
    ("hosts:\n  a:\n    docker_command: []\n", 3, "is empty"),
    ("hosts:\n  a:\n    suites: {halops: {sync: [../x]}}\n", 3, "below the workdir"),
    ("hosts:\n  a:\n    env: [X]\n", 3, "has to be a mapping"),
    ("hosts:\n  a:\n    env:\n      1X: y\n", 4, "environment variable"),
    ("hosts:\n  a:\n    env:\n      X=Y: y\n", 4, "environment variable"),
    ("hosts:\n  a:\n    env:\n      X: true\n", 4, 'in quotes: "true"'),
    ("hosts:\n  a:\n    env:\n      X:\n", 4, "has no value"),
    ("hosts:\n  a:\n    env:\n      X: [1]\n", 4, "has to be text, not a list"),
    ('hosts:\n  a:\n    env:\n      X: "a\\0b"\n', 4, "NUL"),
    # groups
    ("groups:\n  g:\nhosts: {a: }\n", 2, '"hosts" is missing in "g"'),
    ("groups:\n  g: {hosts: []}\nhosts: {a: }\n", 2, "is empty"),
    ("groups:\n  g:\n    hosts: gpu1\nhosts: {gpu2: }\n", 3, 'did you mean "gpu2"?'),
    ("groups:\n  g:\n    hosts: '@h'\nhosts: {a: }\n", 3, 'unknown group "@h"; known: @g'),
    ("groups:\n  g: {hosts: a}\n  h:\n    hosts: '@gg'\nhosts: {a: }\n", 4, 'did you mean "@g"?'),
    ("groups:\n  x:\n    hosts: '@gpu'\nhosts: {gpu2: }\n", 3, '"@gpu", did you mean "gpu2"?'),
    ("groups:\n  nodes:\n    hosts: a\n  h:\n    hosts: node\nhosts: {a: }\n", 5, '"@nodes"?'),
    # no hosts: section
    ("groups:\n  g:\n    hosts: n[1-3]!n33\n", 3, 'unknown host "n33", did you mean "n3"?'),
    ("groups:\n  g:\n    hosts: '@all'\n", 1, '"hosts" is missing'),
    ("groups:\n  g:\n    hosts: n1&n1&n2\n", 3, 'unknown host "n2"; known: n1'),
    ("groups:\n  g:\n    hosts: 'n1!n1'\nhosts:\n", 4, '"hosts" is empty'),
    ("groups:\n  g:\n    hosts: me@gpu1\n", 3, "the login into `user:`"),
    ("groups:\n  g:\n    hosts: n[1-99999999]\n", 3, "more than 20000"),
    ("groups:\n  g: {hosts: 'n[1-9999]'}\n  h:\n    hosts: m[1-19999]\n", 4, "more than 20000"),
    ("groups:\n  g: {hosts: '@h,n1'}\n  h: {hosts: '@g'}\n", 2, "g -> h -> g"),
    ("groups:\n  g: {hosts: '@h'}\n  h: {hosts: '@g'}\nhosts: {a: }\n", 2, "g -> h -> g"),
    ("groups:\n  g: {hosts: '@g'}\nhosts: {a: }\n", 2, "contain each other: g -> g"),
    ("groups:\n  all: {hosts: a}\nhosts: {a: }\n", 2, "@all always means"),
    ("groups:\n  '@g': {hosts: a}\nhosts: {a: }\n", 2, "without the @"),
    ("groups:\n  g:\n    hosts: 'a,,b'\nhosts: {a: }\n", 3, "a name is missing"),
    ("groups:\n  g:\n    hosts: a[1-99999999]\nhosts: {a: }\n", 3, "more than 20000"),
]


@pytest.mark.parametrize(("text", "line", "part"), CASES, ids=[case[2] for case in CASES])
def test_mistakes(tmp_path, text, line, part):
    path = tmp_path / "inventory.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(path)
    said = str(caught.value)
    assert part in said
    assert caught.value.where == f"{path}:{line}", said
    assert caught.value.code == ExitCode.USAGE
    assert "\n" not in said and len(said) - len(str(path)) < 420


USR = 'unknown key "usr", did you mean "user"?'
PRT = 'unknown key "prt", did you mean "port"?'
BANG = '"container" cannot be "!": it is no name Docker gives to a container'


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("hosts:\n  a:\n    usr: x\n", [f":3: {USR}"]),
        ("hosts:\n  a:\n    usr: x\n    prt: 3\n", [f":3: {USR}", f"line 4: {PRT}"]),
        (
            "hosts:\n  a:\n    prt: x\n  b: {container: '!'}\ndefaults:\n  usr: 3\n",
            [f":3: {PRT}", f"line 4: {BANG}", f"line 6: {USR}"],
        ),
        (
            "hosts:\n  a:\n    usr: x\n    prt: 3\n  b: {container: '!'}\n  c: {usr: 1}\n"
            "  d: {usr: 2}\n",
            [f":3: {USR}", f"line 4: {PRT}", f"line 5: {BANG}", "and 2 more"],
        ),
        (
            "hosts:\n  a:\n    zzzz: x\n    prt: 3\n",
            ['zzzz"', "known: address, ", f"line 4: {PRT}"],
        ),
        ("hosts:\n  a: &a\n    usr: x\n  b: *a\n  c: *a\n", [f":3: {USR}"]),  # one mistake
    ],
    ids=["one", "two", "three", "five", "with a hint", "repeated by an alias"],
)
def test_the_topmost_mistakes_and_how_many_more(inventory_file, text, parts):
    path = inventory_file(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    said = str(caught.value)
    assert "\n" not in said
    places = [said.find(part) for part in parts]
    assert -1 not in places and places == sorted(places), said
    assert said.count("line ") == sum(part.startswith("line ") for part in parts)
    assert ("more" in said) == (parts[-1] == "and 2 more")


def test_files_that_are_none(tmp_path):
    missing = tmp_path / "nowhere.yaml"
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"hosts:\n  a:\n    user: \xff\xfe\n")
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (4 * 1024 * 1024 + 1))
    for path, part in [
        (missing, "mxfleet init"),
        (tmp_path, "is a directory"),
        (tmp_path / "binary.yaml" / "x", "cannot be read"),
        (Path("x\0y"), "cannot be read"),
        (binary, "binary.yaml:3: the inventory is not UTF-8"),
        (pipe, "not a regular file"),
        (large, "larger than"),
    ]:
        with pytest.raises(ConfigError) as caught:
            load(path)
        assert part in str(caught.value)


def test_unreadable(tmp_path):
    path = tmp_path / "inventory.yaml"
    path.touch(mode=0o000)
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(65534)  # root reads everything
        with pytest.raises(ConfigError, match="Permission denied"):
            load(path)
    finally:
        os.seteuid(user)
