#!/usr/bin/env bash
# Checks for the compilers that the build needs, and installs what the distribution can provide.
set -euo pipefail
cd "$(dirname "$0")/../.."

command -v cargo >/dev/null 2>&1 || {
  echo "error: cargo is missing; install Rust 1.95 or newer (https://rustup.rs) and run again" >&2
  exit 1
}
version=$(rustc --version | cut -d' ' -f2)
[ "$(printf '%s\n' 1.95.0 "$version" | sort -V | head -n 1)" = 1.95.0 ] || {
  echo "error: rustc $version is too old; CorVer needs 1.95 or newer: rustup update stable" >&2
  exit 1
}
command -v gcc >/dev/null 2>&1 && command -v g++ >/dev/null 2>&1 || . host/setup/apt.sh gcc g++
