#!/usr/bin/env bash
# Looks for docker-registry, from which the tests fetch a rule; else installs Debian's, and does not leave it running.
set -euo pipefail
cd "$(dirname "$0")/../.."

command -v docker-registry >/dev/null 2>&1 && exit 0
echo "setup: docker-registry" >&2
. host/setup/apt.sh docker-registry
if [ -d /run/systemd/system ]; then
  $sudo systemctl disable --now --quiet docker-registry
fi
