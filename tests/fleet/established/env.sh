# The checkout's own environment, beside its benchmark/ folder.
export CHECKOUT_ENV="sourced from $(basename "$PWD")"
