# Sourced by scripts that put Python packages into a virtual environment.
. host/setup/lock.sh

# install_packages FOLDER PACKAGES PROBLEM: does nothing if FOLDER has these packages. PROBLEM ends the message of a failure.
install_packages() {
  local folder=$1 packages=$2 problem=$3
  [ "$(cat "$folder/version" 2>/dev/null || true)" = "$packages" ] && return
  . host/setup/pip.sh
  echo "setup: $packages" >&2
  rm -rf "$folder"
  python3 -m venv "$folder" || {
    . host/setup/apt.sh python3-venv
    python3 -m venv "$folder"
  }
  # wget, which an older verifiers needs, has no wheel.
  "$folder/bin/python" -m pip install --quiet --only-binary=:all: --no-binary=wget $packages || {
    echo "error: pip could not install $packages$problem" >&2
    exit 1
  }
  echo "$packages" >"$folder/version"
}
