#!/usr/bin/env bash
# Puts Inspect AI, two releases of verifiers and a client of the Model Context Protocol into virtual environments, .deps/inspect,
# .deps/verifiers, .deps/rubric and .deps/mcp, for contract tests. Does nothing when they are already there.
set -euo pipefail
cd "$(dirname "$0")/../.."
. host/setup/venv.sh

problem=", which needs Python 3.11 or later"
install_packages .deps/inspect "inspect-ai==0.3.285" "$problem"
install_packages .deps/verifiers "verifiers==0.4.0" "$problem"
install_packages .deps/rubric "verifiers==0.1.9.post2" "$problem"
install_packages .deps/mcp "mcp==2.3.0" "$problem"
