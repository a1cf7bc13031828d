#!/usr/bin/env bash
# Looks for nginx, behind which the tests put two servers; else installs Debian's, and does not leave it running.
set -euo pipefail
cd "$(dirname "$0")/../.."

PATH="$PATH:/usr/sbin"
command -v nginx >/dev/null 2>&1 && exit 0
echo "setup: nginx" >&2
. host/setup/apt.sh nginx
if [ -d /run/systemd/system ]; then
  $sudo systemctl disable --now --quiet nginx
fi
