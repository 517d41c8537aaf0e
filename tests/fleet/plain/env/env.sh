# Sourced before the probe operators.
export PROBE_ENV_SCRIPT=sourced
export PROBE_OVERRIDDEN=by-script
export LD_LIBRARY_PATH=/from/script
