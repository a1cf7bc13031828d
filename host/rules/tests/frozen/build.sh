#!/usr/bin/env bash
# Made rule-0.1.0.wasm, on the day that version 0.1.0 of the contract was frozen. To be run again only for a version that
# is new: what older ones made is never replaced.
set -euo pipefail
cd "$(dirname "$0")/source"
version=$(sed -n 's/^package corver:reward@\(.*\);$/\1/p' ../../../../../wit/corver.wit)
cargo build --release --target wasm32-unknown-unknown --target-dir ../../../../../target/frozen
cp ../../../../../target/frozen/wasm32-unknown-unknown/release/frozen.wasm "../rule-$version.wasm"
