// SPDX-License-Identifier: Apache-2.0
// cli_googleapis.c - `vtpu googleapis -- COMMAND`: the command sees this cloud under Google's host
// names. For clients that hard-code https://tpu.googleapis.com. The command runs in a mount
// namespace with its own /etc/hosts and CA bundle; nothing outside changes.
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "cloud/client/cloud_cli.h"

#define BUNDLE "/etc/ssl/certs/ca-certificates.crt"

static const char *const names[] = {
    "tpu.googleapis.com",          "compute.googleapis.com",
    "oauth2.googleapis.com",       "www.googleapis.com",
    "iam.googleapis.com",          "cloudresourcemanager.googleapis.com",
    "serviceusage.googleapis.com", "cloudbilling.googleapis.com",
    "logging.googleapis.com",      "accounts.google.com",
    "oslogin.googleapis.com",      "cloudquotas.googleapis.com",
    "tunnel.cloudproxy.app",       "tunnel-cloudproxy.googleapis.com"};

// Where clients look for trusted certificate authorities.
static const char *const bundle_variables[] = {"SSL_CERT_FILE",
                                               "REQUESTS_CA_BUNDLE",
                                               "CURL_CA_BUNDLE",
                                               "HTTPLIB2_CA_CERTS",
                                               "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
                                               "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"};

static vt_status system_error(const char *what) {
  return vt_error(VT_UNAVAILABLE, "%s: %s", what, strerror(errno));
}

static vt_status write_proc(const char *path, const char *text) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return system_error(path);
  ssize_t n = write(fd, text, strlen(text));
  close(fd);
  return n == (ssize_t)strlen(text) ? VT_OK : system_error(path);
}

// A mount namespace of our own; other users than root first become root in a user namespace.
static vt_status enter(vt_arena *arena) {
  unsigned uid = geteuid(), gid = getegid();
  if (unshare(CLONE_NEWNS | (uid ? CLONE_NEWUSER : 0)) != 0)
    return vt_status_wrap(
        system_error("no mount namespace"),
        "`vtpu googleapis` needs root, or a kernel that lets users have namespaces");
  if (uid) {
    VT_TRY(write_proc("/proc/self/setgroups", "deny"));
    VT_TRY(write_proc("/proc/self/uid_map", vt_arena_printf(arena, "%u %u 1", uid, uid)));
    VT_TRY(write_proc("/proc/self/gid_map", vt_arena_printf(arena, "%u %u 1", gid, gid)));
  }
  if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0) return VT_OK;
  return vt_status_wrap(system_error("/"),
                        "`vtpu googleapis` cannot have mounts of its own (below a chroot?)");
}

// Shows `text` at `path`, in this namespace only. The file behind it is unlinked.
static vt_status cover(const char *path, const vt_text *text) {
  char temporary[] = "/tmp/vtpu-XXXXXX";
  int fd = mkostemp(temporary, O_CLOEXEC);
  if (fd < 0) return system_error(temporary);
  close(fd);
  vt_status st = vt_file_write(temporary, vt_text_string(text), text->size);
  if (!st && (chmod(temporary, 0644) != 0 || mount(temporary, path, NULL, MS_BIND, NULL) != 0))
    st = system_error(path);
  unlink(temporary);
  return st;
}

static vt_status append_file(vt_text *text, const char *path) {
  vt_bytes file;
  VT_TRY(vt_file_map(path, &file));
  vt_text_put_n(text, file.data, file.size);
  vt_text_put(text, "\n");
  vt_file_unmap(&file);
  return VT_OK;
}

vt_status vt_cli_googleapis(vt_cli *cli) {
  vt_status st = VT_OK;
  vt_text hosts = {0}, bundle = {0};
  if (cli->args.rest_count < 1)
    return vt_error(VT_INVALID_ARGUMENT, "usage: vtpu googleapis -- COMMAND [ARGUMENT...]");
  if (!*cli->googleapis || !*cli->ca_file)
    return vt_error(VT_FAILED_PRECONDITION,
                    "this cloud does not answer under Google's names: start it with `vtpud "
                    "--googleapis=ADDRESS` and set VTPU_GOOGLEAPIS to the address, VTPU_CA to its "
                    "ca.pem");
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    vt_text_printf(&hosts, "%s %s\n", cli->googleapis, names[i]);
  VT_TRY_OUT(append_file(&hosts, "/etc/hosts"));
  VT_TRY_OUT(vt_status_wrap(append_file(&bundle, BUNDLE), "install ca-certificates"));
  VT_TRY_OUT(append_file(&bundle, cli->ca_file));
  VT_TRY_OUT(enter(&cli->arena));
  VT_TRY_OUT(cover("/etc/hosts", &hosts));
  VT_TRY_OUT(cover(BUNDLE, &bundle));
  for (size_t i = 0; i < sizeof bundle_variables / sizeof *bundle_variables; i++)
    setenv(bundle_variables[i], BUNDLE, 1);
  execvp(cli->args.rest[0], cli->args.rest);
  st = system_error(cli->args.rest[0]);
out:
  vt_text_free(&hosts);
  vt_text_free(&bundle);
  return st;
}
