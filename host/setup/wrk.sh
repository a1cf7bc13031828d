#!/usr/bin/env bash
# Looks for wrk, which loads servers; else installs Debian's.
set -euo pipefail
cd "$(dirname "$0")/../.."

command -v wrk >/dev/null 2>&1 && exit 0
echo "setup: wrk" >&2
. host/setup/apt.sh wrk
