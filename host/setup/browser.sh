#!/usr/bin/env bash
# Looks for a browser with which the tests look at pages: CORVER_BROWSER, Chromium or Chrome; else installs Debian's Chromium.
set -euo pipefail
cd "$(dirname "$0")/../.."

[ -n "${CORVER_BROWSER:-}" ] && exit 0 # the user's own
for browser in chromium google-chrome google-chrome-stable chromium-browser; do
  command -v "$browser" >/dev/null 2>&1 && exit 0
done
echo "setup: chromium" >&2
. host/setup/apt.sh chromium
