#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# names.sh PLUGIN HEADER ... - the symbols of libvtpu.so: it exports GetPjrtApi and what the headers declare, and
# imports only from the C library.
set -eu
plugin=$1 failed=0
shift
wrong() { echo "$1"; failed=1; }

given=$(nm -D --defined-only --format=posix "$plugin" | cut -d' ' -f1 | sort)
declared=$({ echo GetPjrtApi; grep -ohE '\bvtpu_[a-z0-9_]+\(' "$@" | tr -d '('; } | sort -u)
[ "$given" = "$declared" ] || wrong "exported: $(echo $given)
declared: $(echo $declared)"

libraries=$(readelf -d "$plugin" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE '^(libc|libm|ld-linux-x86-64)\.so' || true)
[ -z "$libraries" ] || wrong "needs libraries: $libraries"

# Weak names are for tools; nothing is called through them.
asked=$(nm -D --undefined-only --format=posix "$plugin" | grep -vE '@GLIBC_| w ' || true)
[ -z "$asked" ] || wrong "asks for: $asked"
exit $failed
