"""Loaded by verl in each of its processes: entry point ``verl.plugins``, or ``VERL_USE_EXTERNAL_MODULES=corver.verl.plugin``.

verl logs nothing if a plugin fails to load, so this module prints the result.
"""

import sys

try:
    from corver.verl import advantage
except Exception as error:
    print(f"corver: not loaded into verl, whose estimator `corver` is missing: {error}", file=sys.stderr)
    raise
print(f"corver: loaded into verl, with the advantage estimator `{advantage.NAME}`", file=sys.stderr)
