#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bindings.sh FOREIGN PROGRAM ... - runs the program under the dynamic linker's own log and fails when any library bound
# a symbol to the foreign one.
set -eu
foreign=$1
shift
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
LD_DEBUG=bindings LD_DEBUG_OUTPUT="$log/log" "$@" || { echo "the program failed: $?"; exit 1; }
[ "$(cat "$log"/log.* | grep -c 'binding file')" -gt 100 ] || { echo "no log"; exit 1; }
# The library binds its own names to itself, the program asks for some with dlsym, and libgomp also contains OpenACC and
# offloading, which nobody calls.
bound=$(cat "$log"/log.* | grep "to .*/$(basename "$foreign") " | grep -vE "binding file [^ ]*/($(basename "$foreign")|$(basename "$1")) |symbol .(acc_|GOMP_offload_)" || true)
[ -z "$bound" ] || { echo "$bound" | head -20; exit 1; }
