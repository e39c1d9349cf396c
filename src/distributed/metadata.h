// SPDX-License-Identifier: Apache-2.0
// metadata.h - what the metadata server of a TPU VM says of this worker: for programs whose
// environment does not (after sudo, from cron, in a container), and of slices that belong together,
// which it never does. The server's answers are bytes from the network, read with no trust.
#ifndef VT_DISTRIBUTED_METADATA_H
#define VT_DISTRIBUTED_METADATA_H

#include "base/file.h"
#include "base/text.h"

enum { VT_METADATA_MOST = 1 << 16 }; // bytes of an answer

// A vt_lookup: the environment, then the metadata. The server is asked once, and only where it is
// known without asking the network for it: GCE_METADATA_HOST, GCE_METADATA_IP or /etc/hosts; never
// if TPU_SKIP_MDS_QUERY is set. Borrowed for ever; `user` is not used.
const char *vt_worker_variable(void *user, const char *name);

// The rest is for tests.
// Asks for an attribute of the instance. false: it has none, or this is no metadata server.
bool vt_metadata_ask(const char *host, int32_t port, const char *attribute, vt_text *out);
// The body of an answer of HTTP that says all is well.
bool vt_metadata_body(vt_bytes answer, vt_bytes *out_body);
// The value of KEY in lines of KEY: 'value'.
bool vt_metadata_value(vt_bytes lines, const char *key, vt_bytes *out_value);
// Addresses of workers, separated by commas, from triples name:id:address or from addresses.
void vt_metadata_addresses(vt_bytes endpoints, vt_text *out);

#endif
