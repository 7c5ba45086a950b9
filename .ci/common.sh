# What `.ci/run` and `.ci/nightly` share. All steps build in the dev profile unless they say otherwise, so that what one has built the
# next one uses.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
# Nothing is built twice here: whole crates take less time than parts that can be reused.
export CARGO_INCREMENTAL=0
# Nobody looks into these binaries with a debugger.
export CARGO_PROFILE_DEV_DEBUG=false

step() {
    local name=$1 began=$SECONDS
    shift
    printf '\n== %s: %s\n' "$name" "$*"
    "$@"
    printf '== %s: passed in %d s\n' "$name" $((SECONDS - began))
}

skip() {
    printf '\n== %s: skipped, %s\n' "$1" "$2"
}

has_transformers() {
    python3 -c 'import torch, transformers, safetensors' 2>/dev/null
}

command -v cc >/dev/null || { echo "no C compiler: cc is what Rust links with" >&2; exit 1; }
rustc --version
