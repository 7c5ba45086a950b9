#!/usr/bin/env bash
# A run that saves at every other step is killed (SIGKILL) at random moments and always goes on; in the end it is the run
# that nobody killed: the same losses, each once, and the same last checkpoint to the bit.
#
#     tests/kill.sh [TIMES=20] [SEED=1]        needs target/release/meshwright, or MESHWRIGHT=path/to/it
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
meshwright=$(realpath "${MESHWRIGHT:-target/release/meshwright}")
times=${1:-20}
RANDOM=${2:-1}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

for n in $(seq 600); do echo "line $n: the quick brown fox jumps over $((n * n % 97)) lazy dogs"; done >text.txt
cat >config.json <<'JSON'
{"model_type": "gpt2", "vocab_size": 257, "n_positions": 32, "n_embd": 96, "n_layer": 4, "n_head": 4,
 "embd_pdrop": 0.1, "attn_pdrop": 0.1, "resid_pdrop": 0.1}
JSON
options=(config.json --data text.txt --seq 32 --global-batch 8 --steps 60 --eval-every 10 --save-every 2
    --mesh dp=2,tp=2,pp=2,zero=1)

began=$(date +%s%N)
"$meshwright" train "${options[@]}" --out unbroken >unbroken.log
whole=$((($(date +%s%N) - began) / 1000000))
echo "unbroken run: $whole ms"

# What each record says of the loss, in order.
losses() { sed -n 's/.*"step":\([0-9]*\),"\(loss\|valid_loss\)":\([^,}]*\).*/\1 \2 \3/p' "$1/metrics.jsonl"; }

fail() { echo "FAILED: $*" >&2; exit 1; }

compare() {
    diff <(losses unbroken) <(losses killed) || fail "other losses"
    [ "$(ls killed)" = "$(ls unbroken)" ] || fail "other files: $(ls killed)"
    last=$(basename "$(ls -d unbroken/step-* | tail -1)")
    for file in "unbroken/$last"/*; do
        cmp "$file" "killed/$last/$(basename "$file")" || fail "$last differs"
    done
}

# Only whole checkpoints have such a name.
newest() { { ls killed 2>/dev/null || true; } | sed -n '/^step-[0-9]*$/p' | tail -1; }

kills=0 runs=0 left=0
while :; do
    resume=()
    newest=$(newest)
    [ -z "$newest" ] || resume=(--resume)
    "$meshwright" train "${options[@]}" --out killed "${resume[@]}" >killed.log 2>&1 &
    process=$!
    # Beyond the length of a run now and then, so that ends are hit too.
    if [ "$kills" -lt "$times" ]; then
        delay=$((RANDOM * 32768 + RANDOM))
        delay=$((delay % (whole / 2 + 1)))
        sleep "$(printf '%d.%03d' $((delay / 1000)) $((delay % 1000)))"
        if kill -9 "$process" 2>/dev/null; then
            wait "$process" 2>/dev/null || true
            kills=$((kills + 1))
            [ -z "$(compgen -G 'killed/*.partial')" ] || left=$((left + 1))
            echo "kill $kills after $delay ms: from ${newest:-the start} to $(newest)"
            continue
        fi
    fi
    wait "$process" || { cat killed.log >&2; fail "it does not go on from ${newest:-the start}"; }
    compare
    runs=$((runs + 1))
    [ "$kills" -lt "$times" ] || break
    rm -rf killed
done
echo "$kills kills, $left of them while a checkpoint was written or removed; $runs runs came to the end, each as the unbroken one"
echo "last loss: $(losses killed | tail -1)"
