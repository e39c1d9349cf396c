// SPDX-License-Identifier: Apache-2.0
// network.h - the network of workers of level 2 on one host: bridges, routes, packet rules. Plain
// libc: a launcher sets it up on its host, the daemon on its own.
//
// Every project has its own bridge. Workers on several hosts meet at the hub, the daemon's host:
// each host sends packets for workers elsewhere, and for the metadata server, to the hub, which
// knows the host of every worker. The workers of one node reach each other directly, once their
// hosts have been told where they are: a route is for packets of that worker only, and a host takes
// packets of other hosts' workers only from its own workers' peers, or with the hub's mark.
#ifndef VT_CLOUD_NETWORK_H
#define VT_CLOUD_NETWORK_H

#include <stdbool.h>
#include <stddef.h>

#define VT_NET_GATEWAY  "10.164.0.1"
#define VT_NET_METADATA "169.254.169.254"
#define VT_NET_WORKERS  "10.164.0.0/16"

// Runs a program without output and waits; returns its exit status, -1 when it could not run.
int vt_net_run(const char *const *argv);
// Rules that let workers reach the metadata server and nothing else of this host. Recreates them
// when `again`, else creates them if missing. False: nft does not work here.
bool vt_net_guard(bool again);
// Connects one worker: its project's bridge, if missing, a port `veth` on it, and the route. The
// port's other end stays on the host until vt_net_enter moves it to the worker's first process, as
// eth0. `hub` is the address of the hub, "" when all workers are on this host. Returns NULL, or
// what could not be created.
const char *vt_net_open(const char *bridge, const char *veth, const char *ip, const char *hub);
bool vt_net_enter(const char *veth, int pid);
// Where the other workers of its node are: "ip=address of a host" each; those of this host are left
// out. Replaces what was said before. False: the worker is gone, or packets cannot be filtered, so
// that they go by the hub.
bool vt_net_peers(const char *bridge, const char *veth, const char *ip, int count,
                  char *const *peers);
// The worker has ended. A bridge is removed with its last port, the rules with the last bridge.
void vt_net_close(const char *bridge, const char *veth, const char *ip);
// Removes what killed launchers left: everything with the tag, when no worker of that cloud runs
// (`idle`), and bridges without a port. True when no bridge is left.
bool vt_net_sweep(const char *tag, bool idle);
// At the hub: only workers of one project can reach each other across hosts. Clears the list of
// workers.
bool vt_net_hub(void);
// At the hub: a worker of that project is on the host with that address ("" = this one). Called
// with `gone` when it no longer is.
bool vt_net_place(const char *ip, unsigned project, const char *host, bool gone);
// The address of the metadata server, on the loopback interface: guests route to it.
void vt_net_metadata(void);
bool vt_net_metadata_served(void); // by a daemon of this network namespace
// Removes it, with the hub's rules and routes: no worker of this host or hub is left.
void vt_net_leave(void);
// Whether the address is one of this host.
bool vt_net_is_here(const char *address);

#endif
