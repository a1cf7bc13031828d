#!/usr/bin/env bash
# Looks for a browser with which the tests look at pages: CORVER_BROWSER, Chromium or Chrome; else installs Debian's Chromium.
set -euo pipefail
cd "$(dirname "$0")/../.."

[ -n "${CORVER_BROWSER:-}" ] && exit 0 # the user's own
for browser in chromium google-chrome google-chrome-stable chromium-browser; do
  command -v "$browser" >/dev/null 2>&1 && exit 0
done
remedy="install Google Chrome (https://www.google.com/chrome), or set CORVER_BROWSER to a Chromium or Chrome that is here, and run again"
grep -qx 'ID=ubuntu' /etc/os-release 2>/dev/null && {
  echo "error: the tests of pages need a browser, and Ubuntu has Chromium as a snap alone, which apt cannot install: $remedy" >&2
  exit 1
}
echo "setup: chromium" >&2
(. host/setup/apt.sh chromium) || {
  echo "error: the tests of pages need a browser: $remedy" >&2
  exit 1
}
