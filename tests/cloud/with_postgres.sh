#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# with_postgres.sh COMMAND ... - runs a command with its own PostgreSQL server: files in a temporary folder, a Unix
# socket, an unprivileged user. The command gets VTPU_TEST_STORE (a URL) and, to stop the server and restart it,
# VTPU_TEST_STORE_STOP and VTPU_TEST_STORE_START (shell commands). Exits with 77 when there is no PostgreSQL.
set -euo pipefail
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
if [ ! -x "$bin/initdb" ]; then
  echo "skipped: no PostgreSQL server (Debian: postgresql)"
  exit 77
fi
folder=$(mktemp -d /tmp/vtpu-postgres-XXXXXX)
as=()
if [ "$(id -u)" = 0 ]; then
  user=$(id -u postgres 2>/dev/null || id -u nobody)
  as=(setpriv "--reuid=$user" "--regid=$(id -g "$user")" --clear-groups)
  chown "$user" "$folder"
fi
stop="cd / && ${as[*]} $bin/pg_ctl -D $folder/data -m immediate -w stop"
start="cd / && ${as[*]} $bin/pg_ctl -D $folder/data -l $folder/log -w start"
finish() {
  sh -c "$stop" >/dev/null 2>&1 || true
  rm -rf "$folder"
}
trap finish EXIT
cd /
"${as[@]}" env HOME="$folder" LC_ALL=C.UTF-8 "$bin/initdb" -D "$folder/data" -U vtpu -A trust -E UTF8 --no-sync >"$folder/initdb.log" ||
  { cat "$folder/initdb.log"; exit 1; }
# Only processes are killed here, never the machine: nothing needs to reach the disk.
cat >>"$folder/data/postgresql.conf" <<END
listen_addresses = ''
unix_socket_directories = '$folder'
unix_socket_permissions = 0700
fsync = off
shared_buffers = 32MB
max_connections = 40
max_locks_per_transaction = 512
END
sh -c "$start" >/dev/null || { cat "$folder/log"; exit 1; }
export VTPU_TEST_STORE="postgresql:///postgres?host=$folder&user=vtpu"
export VTPU_TEST_STORE_STOP=$stop VTPU_TEST_STORE_START=$start
cd "$OLDPWD"
"$@"
