#!/usr/bin/env bash
# One night of search. Ends with the exit code of its campaign.
set -euo pipefail
cd "$(dirname "$0")"
export CACHEPROOF_HOME="${CACHEPROOF_HOME:-$PWD/cache}"

campaign() { # the folder of a night, then start PLAN or report
  local night=$1 code=0
  shift
  cacheproof/.venv/bin/cacheproof campaign "$@" --store "$night/store" --register faults.jsonl \
    --json "$night/report.json" --junit "$night/report.xml" --sarif "$night/report.sarif" \
    > "$night/report.txt" 2>> "$night/progress.txt" || code=$?
  echo "$code" > "$night/code"
  cat "$night/report.txt"
}

exec 9> night.lock
if ! flock --nonblock 9; then
  echo "the last night still runs; nothing is begun"
  exit 0
fi

for old in nights/*/; do # a night that was killed: keep what it found until then
  if [ -e "$old/store" ] && [ ! -e "$old/code" ]; then
    campaign "${old%/}" report > /dev/null
  fi
done

for tree in vllm fork; do
  if ! { git -C "$tree" fetch --quiet --force --tags origin &&
    git -C "$tree" remote set-head origin --auto > /dev/null &&
    git -C "$tree" checkout --quiet --detach origin/HEAD; }; then
    echo "$tree: not brought up to date; it is searched as it is"
  fi
done

release=$(git -C vllm tag --list 'v*' | grep -x 'v[0-9.]*' | sort --version-sort | tail -n 1)
day=$(date +%y%j) # the year and its day: each day has 10,000 seeds of its own
night=nights/$(date +%Y-%m-%d-%H%M%S)
mkdir -p "$night"
cat > "$night/plan.toml" << END
targets = ["vllm@${release#v}", "engine@${release#v}", "path:vllm", "path:fork"]
seeds = "${day}0000:$((day + 1))0000"
until = 14400
END
campaign "$night" start "$night/plan.toml"

find nights -mindepth 1 -maxdepth 1 -mtime +30 -exec rm -r {} +
exit "$(cat "$night/code")"
