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
$sudo apt-get update -qq || echo "warning: apt-get update failed; trying with the lists that are there" >&2
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "$@" >/dev/null || {
  echo "error: apt-get could not install: $*" >&2
  exit 1
}
