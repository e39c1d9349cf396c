// SPDX-License-Identifier: Apache-2.0
// rendezvous.h - connects the processes of a slice: one socket to each.
#ifndef VT_DISTRIBUTED_RENDEZVOUS_H
#define VT_DISTRIBUTED_RENDEZVOUS_H

#include "distributed/hello.h"

// Fills out_sockets[count] (-1 for this process) and out_members[count]. Errors as vt_peers_join.
vt_status vt_rendezvous(const vt_join *join, const vt_hello *self, int *out_sockets,
                        vt_member *out_members) VT_CHECKED;
// Each gives each other one `size` bytes, and takes as many: mine[count][size], theirs alike. Few
// bytes, that the sockets take at once. errors as vt_peers_join
vt_status vt_rendezvous_swap(const vt_join *join, const vt_member *members, const int *sockets,
                             size_t size, const uint8_t *mine, uint8_t *out_theirs) VT_CHECKED;

#endif
