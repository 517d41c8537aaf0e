# Environment of a job: sourced by bash before the job's Python starts, in a container or on a host.
#
# Finds the toolkit that is there (MACA, else CUDA, else nothing: CPU) and sets what it needs. What
# is set already wins: variables keep their values, folders go to the end of search paths, once.
# Prints nothing, never fails, and leaves the shell's options as they are (set -eu is fine).

_mxfleet_toolkit() { # PATTERN…: the first folder that is there; of several versions the newest
    local pattern found
    for pattern in "$@"; do
        found=$(compgen -G "$pattern" 2>/dev/null | sort -V | tail -n 1) || found=""
        if [ -n "$found" ] && [ -d "$found" ]; then
            printf '%s' "$found"
            return 0
        fi
    done
    return 0
}

_mxfleet_append() { # VARIABLE FOLDER…: those folders that are there and not in the list yet
    local name=$1 folder value
    shift
    for folder in "$@"; do
        value=${!name:-}
        if [ -d "$folder" ] && [[ ":$value:" != *":$folder:"* ]]; then
            export "$name=${value:+$value:}$folder"
        fi
    done
    return 0
}

_mxfleet_environment() {
    local maca cuda
    maca=${MACA_PATH:-$(_mxfleet_toolkit /opt/maca '/opt/maca-[0-9]*')}
    if [ -n "$maca" ] && [ -d "$maca" ]; then
        export MACA_PATH=$maca
        if [ -d "$maca/mxgpu_llvm/bin" ]; then
            export MACA_CLANG_PATH=${MACA_CLANG_PATH:-$maca/mxgpu_llvm/bin}
        fi
        if [ -d "$maca/tools/cu-bridge" ]; then # MACA's own CUDA front end
            export CUCC_PATH=${CUCC_PATH:-$maca/tools/cu-bridge}
            export CUDA_HOME=${CUDA_HOME:-$CUCC_PATH}
            export CUDA_PATH=${CUDA_PATH:-$CUCC_PATH}
        fi
        _mxfleet_append PATH "$maca/bin" "$maca/mxgpu_llvm/bin" "$maca/tools/cu-bridge/bin" \
            /opt/mxdriver/bin
        _mxfleet_append LD_LIBRARY_PATH "$maca/lib" "$maca/mxgpu_llvm/lib" "$maca/ompi/lib" \
            /opt/mxdriver/lib
        return 0
    fi
    cuda=${CUDA_HOME:-${CUDA_PATH:-$(_mxfleet_toolkit /usr/local/cuda '/usr/local/cuda-[0-9]*')}}
    if [ -n "$cuda" ] && [ -d "$cuda" ]; then
        export CUDA_HOME=${CUDA_HOME:-$cuda}
        export CUDA_PATH=${CUDA_PATH:-$cuda}
        _mxfleet_append PATH "$cuda/bin"
        _mxfleet_append LD_LIBRARY_PATH "$cuda/lib64" "$cuda/extras/CUPTI/lib64"
    fi
    # Where NVIDIA's container runtime puts the driver's libraries and tools.
    _mxfleet_append PATH /usr/local/nvidia/bin
    _mxfleet_append LD_LIBRARY_PATH /usr/local/nvidia/lib64
    return 0
}

_mxfleet_environment
unset -f _mxfleet_toolkit _mxfleet_append _mxfleet_environment
