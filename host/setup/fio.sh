#!/usr/bin/env bash
# Looks for fio, which measures disks; else installs Debian's.
set -euo pipefail
cd "$(dirname "$0")/../.."

command -v fio >/dev/null 2>&1 && exit 0
echo "setup: fio" >&2
. host/setup/apt.sh fio
