#!/usr/bin/env bash
# doxygen makes pages of the public headers without a warning, and their comments are in these pages. $1: the build.
set -euo pipefail

doxygen "$1/Doxyfile"
check() {
  sed 's/<[^>]*>//g' "$1" | tr '\n' ' ' | grep -q "$2" || { echo "expected '$2' in $1" >&2; exit 1; }
}
pages=$1/docs/html
check "$pages/classgraphsink_1_1SinkCache.html" 'Drops all keys but those whose last launch has not ended'  # in front of it
check "$pages/structgraphsink_1_1SinkReport.html" 'keys that were dropped'                                  # behind it
check "$pages/capture_8h.html" 'SinkCache: sinks code that knows nothing of graphsink'                     # of the file
