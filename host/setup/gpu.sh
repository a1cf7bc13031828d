# Sourced: sets `layout` to the build to install, cuda or cpu. $1: a choice of the user, or empty; $2: the build that is
# installed, or empty; $3: name of the library; $4: variable of the choice.
choose_layout() {
  local gpus
  layout=$1
  [ -n "$layout" ] && return
  # No pipe: `grep -q` ends at the first match; nvidia-smi then cannot write, and the pipe fails.
  if command -v nvidia-smi >/dev/null 2>&1 && gpus=$(nvidia-smi -L 2>/dev/null) && [[ $gpus == *GPU* ]]; then
    layout=cuda
  elif [ "$2" = cuda ]; then
    # Gigabytes that the other nodes of a cluster need, and that work without a GPU too.
    layout=cuda
    echo "setup: no GPU here; keeping the CUDA build of $3 ($4=cpu make setup replaces it)" >&2
  else
    layout=cpu
  fi
}
