// SPDX-License-Identifier: Apache-2.0
// heartbeat.c - inside a worker: sends the metadata server a heartbeat every two seconds, with the
// worker's symptoms as lines "symptom TYPE DETAILS", and follows the reply. Lines of the reply:
//   verdict TEXT   the doctor's verdict on the slice: logged in the worker once it has stood for
//                  ten seconds, so that hosts starting one after the other cause no noise
//   release PID OPENED_NS WHO   ends that process, which has the chips (release.c)
// The last logged verdict is in /run/vtpu/doctor: programs may read it, and a restarted agent does
// not log it again.
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/activity.h"
#include "cloud/worker/boot.h"

enum { TEXT = 1024, STANDS = 5 }; // heartbeats

static void read_line(const char *root, const char *name, char *out, size_t size) {
  char path[600];
  snprintf(path, sizeof path, "%s%s", root, name);
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);
  if (fd >= 0) close(fd);
  out[n > 0 ? n : 0] = 0;
  out[strcspn(out, "\n")] = 0;
}

// A line in syslog format, in the worker's own file.
static bool log_line(const char *root, const char *text) {
  char path[600], host[256], line[TEXT + 400], when[32];
  time_t now = time(NULL);
  struct tm local;
  strftime(when, sizeof when, "%b %e %T", localtime_r(&now, &local));
  read_line(root, "/etc/hostname", host, sizeof host);
  int n = snprintf(line, sizeof line, "%s %s vtpu-doctor: %s\n", when, host, text);
  snprintf(path, sizeof path, "%s/var/log/syslog", root);
  int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
  if (fd < 0) return false;
  bool good = write(fd, line, (size_t)n) == n;
  return close(fd) == 0 && good;
}

static void hear_verdict(const char *root, const char *text) {
  static char last[TEXT], logged[TEXT];
  static int stands;
  char path[600];
  if (!*logged) read_line(root, "/run/vtpu/doctor", logged, sizeof logged);
  stands = strcmp(text, last) == 0 ? stands + 1 : 1;
  snprintf(last, sizeof last, "%s", text);
  if (stands < STANDS || strcmp(text, logged) == 0) return;
  if (!log_line(root, text)) return;
  snprintf(logged, sizeof logged, "%s", text);
  snprintf(path, sizeof path, "%s/run/vtpu/doctor", root);
  (void)vt_boot_write(path, text, 0644);
}

static void release(const char *root, unsigned uid_base, const char *words) {
  char who[260], folder[600], text[TEXT];
  long pid;
  unsigned long long opened_ns;
  if (sscanf(words, "%ld %llu %255s", &pid, &opened_ns, who) != 3) return;
  snprintf(folder, sizeof folder, "%s" VT_ACTIVITY_FOLDER, root);
  const char *why = vt_boot_release(folder, uid_base, pid, opened_ns);
  if (!why) return;
  snprintf(text, sizeof text,
           *why ? "process %ld has the chips and does not end for %s: %s"
                : "process %ld has the chips and is ended for %s%s",
           pid, who, why);
  (void)log_line(root, text);
}

static char symptoms[2048]; // not sent yet, as lines

void vt_boot_symptom(const char *type, const char *format, ...) {
  char text[200];
  size_t n = strlen(symptoms);
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (n + sizeof text + 64 < sizeof symptoms)
    snprintf(symptoms + n, sizeof symptoms - n, "symptom %s %s\n", type, text);
}

static void log_symptoms(const char *root) {
  char text[300];
  for (const char *p = symptoms; *p; p += strcspn(p, "\n"), p += *p == '\n') {
    snprintf(text, sizeof text, "%.*s", (int)strcspn(p + 8, "\n"), p + 8);
    (void)log_line(root, text);
  }
}

void vt_boot_heartbeat(const char *server, const char *root, unsigned uid_base) {
  static char reply[8192];
  char tag[32], path[128], epoch[24];
  read_line(root, VT_ACTIVITY_FOLDER ".epoch", epoch, sizeof epoch);
  snprintf(path, sizeof path, "/computeMetadata/v1/vtpu/beat?epoch=%.18s",
           epoch[strspn(epoch, "0123456789")] ? "0" : epoch);
  vt_boot_memory_check(root);
  if (!vt_boot_metadata(server, path, symptoms, reply, sizeof reply, tag)) return;
  log_symptoms(root);
  *symptoms = 0;
  for (char *p = reply, *next; *p; p = next) {
    size_t n = strcspn(p, "\n");
    next = p + n + (p[n] == '\n');
    p[n] = 0;
    if (strncmp(p, "verdict ", 8) == 0 && n - 8 < TEXT) hear_verdict(root, p + 8);
    if (strncmp(p, "release ", 8) == 0) release(root, uid_base, p + 8);
  }
}
