# Sourced by the other scripts: a pip that works, and wheels fetched for a fixed Python, whatever the user's is.
command -v python3 >/dev/null 2>&1 && python3 -m pip --version >/dev/null 2>&1 || . host/setup/apt.sh python3 python3-pip python3-venv

pip_run() { python3 -m pip "$@"; }

# fetch_wheels FOLDER REQUIREMENT...
fetch_wheels() {
  local folder=$1
  shift
  pip_run download --quiet --no-deps --only-binary=:all: --dest "$folder" --implementation cp --python-version 3.11 \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux_2_25_x86_64 \
    --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 "$@" || {
    echo "error: could not download $* with pip; check the network or pip's index settings and run again" >&2
    exit 1
  }
}
