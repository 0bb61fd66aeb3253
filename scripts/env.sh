#!/usr/bin/env bash
# Makes .venv from the locked, hashed dependencies. usage: scripts/env.sh LOCKFILE
# Quiet but for one line a step; the full output of a step is shown only if it fails.
set -euo pipefail
lock=$1
stamp_of() { echo ".venv/.ready-$(basename "$1" .lock)"; }
digest_of() { cat "$1" pyproject.toml | sha256sum | cut -c1-16; }
is_ready() { [ "$(cat "$(stamp_of "$1")" 2>/dev/null || true)" = "$(digest_of "$1")" ]; }
is_ready "$lock" && exit 0
is_ready requirements-dev.lock && exit 0 # holds everything of requirements.lock, at the same versions

python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "Gavel needs Python 3.11 or newer; '$python' is $("$python" --version 2>&1). Set PYTHON=/path/to/python3.11" >&2
  exit 1
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
step() { # step MESSAGE COMMAND...
  local began=$SECONDS message=$1
  shift
  printf '  %s ... ' "$message"
  if "$@" >"$log" 2>&1; then
    echo "done ($((SECONDS - began)) s)"
  else
    echo "FAILED"
    cat "$log" >&2
    exit 1
  fi
}

echo "Setting up .venv ($(grep -c '==' "$lock") locked packages, about a minute the first time)"
[ -x .venv/bin/python ] || step "1/3 environment" "$python" -m venv .venv
step "2/3 dependencies from $lock" .venv/bin/python -m pip install --disable-pip-version-check --no-input \
  --require-hashes --only-binary :all: -r "$lock"
step "3/3 gavel itself" .venv/bin/python -m pip install --disable-pip-version-check --no-input \
  --no-deps --no-build-isolation -e .
digest_of "$lock" >"$(stamp_of "$lock")"
