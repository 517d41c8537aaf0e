#!/usr/bin/env bash
# From a fresh Debian or Ubuntu machine to a first result.
#
#   ./quickstart.sh          install what is missing, set up .venv, run the main job on this machine
#   ./quickstart.sh --test   the same for the tests (sshd, Docker, …), then all tests
#
# Installs only what is missing, from the distribution, as root or through sudo. Without both it
# names what to install, and what was skipped. PYTHON=… and TORCH=… choose other builds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
exec </dev/null
export DEBIAN_FRONTEND=noninteractive
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

say() { printf 'quickstart: %s\n' "$*" >&2; }

has() { command -v "$1" >/dev/null 2>&1; }

is_usable_python() { # PYTHON: new enough, and able to make a virtual environment
    "$1" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null
}

find_python() { # the first usable one; nothing when there is none
    local candidate
    for candidate in ${PYTHON:-python3 /usr/bin/python3 python3.13 python3.12 python3.11 python3.10}; do
        if is_usable_python "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
}

missing_for_setup() {
    has make || echo make
    [ -x .venv/bin/pip ] || [ -n "$(find_python)" ] || echo python3 python3-venv
}

missing_for_tests() {
    has sshd || echo openssh-server
    has ssh || echo openssh-client
    has dockerd || echo docker.io
    # Newer releases have the client in a package of its own.
    has docker || { apt-cache show docker-cli >/dev/null 2>&1 && echo docker-cli || echo docker.io; }
    has containerd || echo containerd
    has debootstrap || echo debootstrap
    has ip || echo iproute2
    has tc || echo iproute2
    has rsync || echo rsync
    has cron || echo cron
    # An engine refuses to work on a kernel with AppArmor when the profile loader is absent.
    if grep -qs Y /sys/module/apparmor/parameters/enabled; then
        has apparmor_parser || echo apparmor
    fi
    local shell # the tests quote for login shells of other families too
    for shell in zsh fish tcsh; do
        has "$shell" || echo "$shell"
    done
}

missing() {
    missing_for_setup
    if [ "$mode" = test ]; then missing_for_tests; fi
}

words() { tr -s ' \n' '\n' | sort -u | paste -sd ' ' -; }

become_root() { # sets as_root to what runs a command as root; fails when nothing does
    if [ "$(id -u)" = 0 ]; then
        as_root=()
    elif has sudo && { sudo -n true 2>/dev/null || { [ -t 2 ] && sudo -v; }; }; then
        as_root=(sudo -n env "DEBIAN_FRONTEND=$DEBIAN_FRONTEND")
    else
        return 1
    fi
}

install() { # PACKAGE…
    local apt=("${as_root[@]}" apt-get -q -o DPkg::Lock::Timeout=300)
    say "installing: $*"
    "${apt[@]}" update || say "apt-get update had errors; going on with the lists that are there"
    # A package counts as installed by its commands: a service that cannot start here is harmless.
    "${apt[@]}" install -y --no-install-recommends "$@" ||
        say "apt-get install had errors; checking what is there"
}

case "${1-}" in
    "") mode=demo ;;
    --test) mode=test ;;
    *)
        say "unknown argument '$1'; use ./quickstart.sh or ./quickstart.sh --test"
        exit 2
        ;;
esac

packages=$(missing | words)
if [ -n "$packages" ] && has apt-get && become_root; then
    # shellcheck disable=SC2086  # a list of package names
    install $packages
    packages=$(missing | words)
fi
if [ -n "$(missing_for_setup)" ]; then
    say "missing, and not installed (needs root or sudo, and apt): $(missing_for_setup | words)"
    say "as root: apt-get install -y $packages"
    exit 1
fi
if [ -n "$packages" ]; then
    say "missing, and not installed (needs root or sudo, and apt): $packages"
    say "as root: apt-get install -y $packages"
    say "skipped until then: the tests that need these, among them the fleet tests"
elif [ "$mode" = test ] && ! become_root; then
    say "skipped: the fleet tests; they need root or sudo"
fi

if [ "$mode" = test ]; then
    goals=(test)
else
    goals=(setup demo)
fi
exec make PYTHON="$(find_python || true)" ${TORCH:+TORCH="$TORCH"} "${goals[@]}"
