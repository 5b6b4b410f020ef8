#!/bin/bash
# Random work on files of a real mount beside shadow copies, with remounts and kills between. Needs root for fuseblk and
# loop devices.
#
#   fsx.sh LOAMFS FSX [SWITCH...]     the two programs, and what the second takes
set -euo pipefail

loamfs=$(realpath "$1")
fsx=$(realpath "$2")
shift 2
. "$(dirname "$0")/common.sh"
last_words() { :; }

"$fsx" --loamfs "$loamfs" --work "$work" "$@" &
# A signal ends the wait, not only the program.
wait $!
