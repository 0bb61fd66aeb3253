#!/usr/bin/env bash
# Makes .venv from the locked, hashed dependencies. usage: scripts/env.sh LOCKFILE
# With requirements-frameworks.lock it makes .venv-frameworks instead, without gavel, within FRAMEWORKS_LIMIT_S seconds.
# Quiet but for one line a step; the full output of a step is shown only if it fails.
set -euo pipefail
lock=$1
folder=.venv kind=(--require-hashes --only-binary :all:) bounded=(env)
if [ "$lock" = requirements-frameworks.lock ]; then
  # without hashes: which build of torch is right depends on the machine
  folder=.venv-frameworks kind=(--only-binary :all:) limit_s=${FRAMEWORKS_LIMIT_S:-1500} bounded=(timeout "$limit_s")
fi
stamp_of() { echo "$folder/.ready-$(basename "$1" .lock)"; }
digest_of() { cat "$1" pyproject.toml | sha256sum | cut -c1-16; }
is_ready() { [ "$(cat "$(stamp_of "$1")" 2>/dev/null || true)" = "$(digest_of "$1")" ]; }
is_ready "$lock" && exit 0
# requirements-dev.lock holds everything of requirements.lock, at the same versions
[ "$folder" = .venv ] && is_ready requirements-dev.lock && exit 0

python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "Gavel needs Python 3.11 or newer; '$python' is $("$python" --version 2>&1). Set PYTHON=/path/to/python3.11" >&2
  exit 1
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
step() { # step MESSAGE COMMAND...
  local began=$SECONDS message=$1 code=0
  shift
  printf '  %s ... ' "$message"
  "$@" >"$log" 2>&1 || code=$?
  [ "$code" = 0 ] && echo "done ($((SECONDS - began)) s)" && return
  echo "FAILED$([ "$code" = 124 ] && echo " (not done within $limit_s s)")"
  cat "$log" >&2
  exit 1
}

# uv, where it is there, takes a few seconds of what pip takes a minute for. Neither compiles what is never imported:
# Python does it at the first import. The lock file is whole, so nothing is left to resolve but for its frameworks.
if command -v uv >/dev/null; then
  make_venv=(uv venv --quiet --allow-existing --seed --python "$python") install=(uv pip install --python "$folder/bin/python")
else
  make_venv=("$python" -m venv)
  install=("$folder/bin/python" -m pip install --disable-pip-version-check --no-input --no-compile)
fi
[ "$folder" = .venv ] && kind+=(--no-deps)
echo "Setting up $folder ($(grep -c '==' "$lock") locked packages, about a minute the first time; with uv, seconds)"
[ -x "$folder/bin/python" ] || step "1/3 environment" "${make_venv[@]}" "$folder"
rm -f "$(stamp_of "$lock")" # until the next steps are done, nothing may take this environment for a whole one
step "2/3 dependencies from $lock" "${bounded[@]}" "${install[@]}" "${kind[@]}" -r "$lock"
if [ "$folder" = .venv ]; then
  step "3/3 gavel itself" "${install[@]}" --no-deps --no-build-isolation -e .
else
  step "3/3 the libraries agree" "$folder/bin/python" -m pip check
fi
digest_of "$lock" >"$(stamp_of "$lock")"
