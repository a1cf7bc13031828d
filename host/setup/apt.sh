# Sourced: `. host/setup/apt.sh PACKAGE...` installs Debian or Ubuntu packages, or says what to install by hand.
command -v apt-get >/dev/null 2>&1 || {
  echo "error: missing on this machine: $*. Install the equivalents with your package manager and run again" >&2
  exit 1
}
sudo=""
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null 2>&1 || {
    echo "error: missing on this machine: $*. Install them as root (apt-get install $*) and run again" >&2
    exit 1
  }
  sudo=sudo
fi
# `apt-get update` fails while another one runs, so the scripts of a checkout wait for each other. `apt-get install` waits for programs of
# the system for ten minutes. A server that a package starts must not inherit the lock.
mkdir -p .deps
(
  flock 8 || echo "warning: .deps cannot be locked; do not run two set-ups concurrently" >&2
  $sudo apt-get update -qq 8>&- || echo "warning: apt-get update failed; trying with the lists that are there" >&2
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -o DPkg::Lock::Timeout=600 -y -qq --no-install-recommends "$@" >/dev/null 8>&-
) 8>.deps/apt.lock || {
  echo "error: apt-get could not install: $*" >&2
  exit 1
}
