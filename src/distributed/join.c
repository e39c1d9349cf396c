// SPDX-License-Identifier: Apache-2.0
// join.c - see join.h. Each source fills the same structure; what they have in common, the grid of
// processes, is checked once at the end.
#include "distributed/join.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"

typedef struct reader {
  const vt_slice *slice;
  vt_lookup lookup;
  void *user;
  const vt_store *store;
  vt_arena *arena;
  vt_join *join;
} reader;

// ---- single values ------------------------------------------------------------------------------

// An empty value counts as none.
static const char *get(const reader *r, const char *name) {
  const char *value = r->lookup(r->user, name);
  return value && *value ? value : NULL;
}

// The first of two names that is set; *out_name is it.
static const char *get_either(const reader *r, const char *name, const char *older,
                              const char **out_name) {
  const char *value = get(r, name);
  *out_name = value ? name : older;
  return value ? value : get(r, older);
}

static bool read_number(const char *text, size_t size, int32_t least, int32_t most,
                        int32_t *out_value) {
  int64_t value = 0;
  if (size == 0 || size > 9) return false;
  for (size_t i = 0; i < size; i++) {
    if (!isdigit((unsigned char)text[i])) return false;
    value = value * 10 + (text[i] - '0');
  }
  *out_value = (int32_t)value;
  return value >= least && value <= most;
}

static vt_status get_number(const reader *r, const char *name, int32_t least, int32_t most,
                            int32_t *out_value) {
  const char *text = get(r, name);
  if (!text)
    return vt_error(VT_INVALID_ARGUMENT, "%s is not set: it says which of the processes this is",
                    name);
  if (read_number(text, strlen(text), least, most, out_value)) return VT_OK;
  return vt_error(VT_INVALID_ARGUMENT, "%s is \"%.64s\"; it should be a number from %d to %d", name,
                  text, least, most);
}

// "2,2,1"; 1 to 3 numbers, the rest are 1.
static vt_status read_bounds(const char *name, const char *text, int32_t *out_bounds) {
  const char *at = text;
  out_bounds[0] = out_bounds[1] = out_bounds[2] = 1;
  for (int i = 0; i < 3; i++) {
    size_t size = strcspn(at, ",");
    if (!read_number(at, size, 1, 1 << 20, &out_bounds[i])) break;
    at += size;
    if (!*at) return VT_OK;
    at++;
  }
  return vt_error(VT_INVALID_ARGUMENT, "%s is \"%.64s\"; it should be three numbers such as 2,2,1",
                  name, text);
}

static vt_status read_host(const char *what, const char *text, size_t size, char *out_host) {
  bool good = size > 0 && size < VT_HOST_NAME;
  for (size_t i = 0; good && i < size; i++) good = isgraph((unsigned char)text[i]);
  if (!good)
    return vt_error(VT_INVALID_ARGUMENT, "%s: \"%.*s\" is not the name or address of a host", what,
                    size > 64 ? 64 : (int)size, text);
  memcpy(out_host, text, size);
  out_host[size] = 0;
  return VT_OK;
}

// "host", "host:port", "[::1]:port".
static vt_status read_address(const char *what, const char *text, size_t size, int32_t port,
                              vt_address *out_address) {
  const char *end = text + size, *host = text, *colon = end;
  size_t host_size = size;
  if (size && *text == '[') {
    const char *close = memchr(text, ']', size);
    host = text + 1;
    host_size = close ? (size_t)(close - host) : 0;
    colon = close ? close + 1 : end;
    if (colon < end && *colon != ':') host_size = 0;
  } else {
    const char *first = memchr(text, ':', size);
    bool several = first && memchr(first + 1, ':', (size_t)(end - first) - 1);
    if (first && !several) { // more than one colon: an IPv6 address without a port
      host_size = (size_t)(first - text);
      colon = first;
    }
  }
  out_address->port = port;
  VT_TRY(read_host(what, host, host_size, out_address->host));
  if (colon < end &&
      !read_number(colon + 1, (size_t)(end - colon) - 1, 1, 65535, &out_address->port))
    return vt_error(VT_INVALID_ARGUMENT, "%s: \"%.*s\" has no port from 1 to 65535", what,
                    size > 96 ? 96 : (int)size, text);
  return VT_OK;
}

static vt_status own_port(const reader *r, int32_t *out_port) {
  *out_port = VT_PROCESS_PORT;
  return get(r, "TPU_PROCESS_PORT") ? get_number(r, "TPU_PROCESS_PORT", 1, 65535, out_port) : VT_OK;
}

static vt_status too_many(int64_t count) {
  return vt_error(VT_UNIMPLEMENTED, "%lld processes; vtpu connects up to %d", (long long)count,
                  VT_PROCESSES_MOST);
}

// ---- lists --------------------------------------------------------------------------------------

typedef struct addresses {
  int32_t count;
  vt_address *list;
} addresses;

static vt_status read_list(const reader *r, const char *name, const char *text, int32_t port,
                           addresses *out) {
  int64_t count = 1;
  for (const char *at = text; *at; at++) count += *at == ',';
  if (count > VT_PROCESSES_MOST) return too_many(count);
  out->count = (int32_t)count;
  out->list = VT_NEW_ARRAY(r->arena, vt_address, (size_t)count);
  for (int32_t i = 0; i < out->count; i++) {
    size_t size = strcspn(text, ",");
    VT_TRY(read_address(name, text, size, port, &out->list[i]));
    text += size + (text[size] == ',');
    for (int32_t k = 0; k < i; k++)
      if (out->list[k].port == out->list[i].port && !strcmp(out->list[k].host, out->list[i].host))
        return vt_error(VT_INVALID_ARGUMENT,
                        "%s: processes %d and %d have the same address, %s:%d; each needs a port "
                        "of its own (TPU_PROCESS_ADDRESSES=host:port,...)",
                        name, k, i, out->list[i].host, out->list[i].port);
  }
  return VT_OK;
}

static const char *text_of(const reader *r, const char *text) {
  return vt_arena_copy(r->arena, text, strlen(text) + 1);
}

// Processes of this slice are `list`, `index` is this one; of other slices only the first is known.
static vt_status take_list(const reader *r, const addresses *list, int32_t index) {
  vt_join *join = r->join;
  int32_t slices = r->slice->slices, slice = 0;
  const char *coordinator = get(r, "MEGASCALE_COORDINATOR_ADDRESS");
  join->per_slice = list->count;
  if ((int64_t)list->count * slices > VT_PROCESSES_MOST)
    return too_many((int64_t)list->count * slices);
  join->count = list->count * slices;
  if (slices > 1) {
    VT_TRY(get_number(r, "MEGASCALE_SLICE_ID", 0, slices - 1, &slice));
    if (!coordinator)
      return vt_error(VT_INVALID_ARGUMENT,
                      "MEGASCALE_NUM_SLICES is %d, and MEGASCALE_COORDINATOR_ADDRESS is not set: "
                      "it is the address of the first worker of slice 0",
                      slices);
  }
  const char **names = VT_NEW_ARRAY(r->arena, const char *, (size_t)join->count);
  for (int32_t i = 0; i < list->count; i++)
    names[slice * list->count + i] = text_of(r, list->list[i].host);
  join->names = names;
  join->index = slice * list->count + index;
  join->own = list->list[index];
  join->root = list->list[0];
  if (slices > 1 && slice > 0) {
    int32_t port = list->list[0].port;
    VT_TRY(read_address("MEGASCALE_COORDINATOR_ADDRESS", coordinator, strlen(coordinator), port,
                        &join->root));
    join->root.port = port; // that one is of the framework's own coordinator
  }
  return VT_OK;
}

// ---- sources ------------------------------------------------------------------------------------

static vt_status from_addresses(const reader *r, const char *text) {
  addresses list;
  int32_t port, index;
  const char *task;
  VT_TRY(own_port(r, &port));
  VT_TRY(read_list(r, "TPU_PROCESS_ADDRESSES", text, port, &list));
  (void)get_either(r, "CLOUD_TPU_TASK_ID", "TPU_WORKER_ID", &task);
  VT_TRY(get_number(r, task, 0, list.count - 1, &index));
  if (get(r, "TPU_PROCESS_PORT") && port != list.list[index].port)
    return vt_error(VT_INVALID_ARGUMENT,
                    "TPU_PROCESS_PORT is %d; TPU_PROCESS_ADDRESSES gives process %d the port %d",
                    port, index, list.list[index].port);
  return take_list(r, &list, index);
}

static vt_status from_hostnames(const reader *r, const char *text) {
  addresses list;
  int32_t port, index;
  VT_TRY(own_port(r, &port));
  VT_TRY(read_list(r, "TPU_WORKER_HOSTNAMES", text, port, &list));
  if (list.count != r->slice->vms)
    return vt_error(VT_INVALID_ARGUMENT, "TPU_WORKER_HOSTNAMES has %d names; %s has %d host%s",
                    list.count, r->slice->name, r->slice->vms, r->slice->vms == 1 ? "" : "s");
  VT_TRY(get_number(r, "TPU_WORKER_ID", 0, list.count - 1, &index));
  return take_list(r, &list, index);
}

// The first node of "tpu[07-09,12],login" is tpu07.
static vt_status first_node(const char *name, const char *text, char *out_host) {
  size_t size = strcspn(text, ",["), digits = 0;
  char host[VT_HOST_NAME];
  if (text[size] == '[') {
    const char *number = text + size + 1;
    digits = strspn(number, "0123456789");
    if (digits == 0 || size + digits >= sizeof host)
      return vt_error(VT_INVALID_ARGUMENT, "%s is \"%.64s\", not a list of nodes", name, text);
    memcpy(host + size, number, digits);
  }
  if (size >= sizeof host) size = 0;
  memcpy(host, text, size);
  return read_host(name, host, size + digits, out_host);
}

// `rank` and `size` of a launcher, with the numbers of this node's processes.
static vt_status from_ranks(const reader *r, const char *root, int32_t job,
                            const char *const names[3]) {
  vt_join *join = r->join;
  int32_t local;
  VT_TRY(get_number(r, names[0], 1, 1 << 20, &join->count));
  if (join->count > VT_PROCESSES_MOST) return too_many(join->count);
  VT_TRY(get_number(r, names[1], 0, join->count - 1, &join->index));
  VT_TRY(get_number(r, names[2], 0, join->index, &local));
  if (join->count % r->slice->slices)
    return vt_error(VT_INVALID_ARGUMENT, "%s is %d; it does not divide by the %d slices of %s",
                    names[0], join->count, r->slice->slices, r->slice->name);
  join->per_slice = join->count / r->slice->slices;
  // Below the ports that the kernel hands out and those of JAX's coordinator (61440 and up).
  join->root.port = 20480 + 8 * (job % 1024);
  join->own.port = join->root.port + local;
  snprintf(join->root.host, sizeof join->root.host, "%s", root);
  if (join->index == 0) {
    join->own = join->root;
    return VT_OK;
  }
  const char *node = get(r, "SLURMD_NODENAME");
  if (node) return read_host("SLURMD_NODENAME", node, strlen(node), join->own.host);
  if (!strcmp(root, "localhost"))
    strcpy(join->own.host, root);
  else if (gethostname(join->own.host, sizeof join->own.host - 1))
    return vt_error(VT_INTERNAL, "this host has no name");
  return VT_OK;
}

static const char *const slurm[] = {"SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID"};
static const char *const ompi[] = {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
                                   "OMPI_COMM_WORLD_LOCAL_RANK"};

static vt_status from_slurm(const reader *r) {
  char root[VT_HOST_NAME];
  const char *name, *nodes = get_either(r, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", &name);
  int32_t job;
  VT_TRY(get_number(r, "SLURM_JOB_ID", 0, 999999999, &job));
  if (!nodes) return vt_error(VT_INVALID_ARGUMENT, "%s is not set", name);
  VT_TRY(first_node(name, nodes, root));
  return from_ranks(r, root, job, slurm);
}

// mpirun itself runs on the host of process 0: "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911".
static vt_status from_ompi(const reader *r) {
  char root[VT_HOST_NAME] = "localhost";
  const char *uri = get(r, "OMPI_MCA_orte_hnp_uri"), *size = get(r, ompi[0]);
  const char *here = get(r, "OMPI_COMM_WORLD_LOCAL_SIZE"), *tcp = uri ? strstr(uri, "://") : NULL;
  int32_t job = uri ? (int32_t)((strtoul(uri, NULL, 10) >> 16) % 1024) : 0;
  if (!here || strcmp(here, size)) { // not all on this host
    if (!tcp)
      return vt_error(VT_INVALID_ARGUMENT,
                      "OMPI_MCA_orte_hnp_uri does not say where process 0 is; set "
                      "TPU_PROCESS_ADDRESSES and CLOUD_TPU_TASK_ID instead");
    VT_TRY(read_host("OMPI_MCA_orte_hnp_uri", tcp + 3, strcspn(tcp + 3, ",:"), root));
  }
  return from_ranks(r, root, job, ompi);
}

// They tell each other where they are.
static vt_status from_store(const reader *r) {
  vt_join *join = r->join;
  if (r->store->count > VT_PROCESSES_MOST) return too_many(r->store->count);
  if (r->store->count % r->slice->slices)
    return vt_error(VT_INVALID_ARGUMENT, "%d processes; they do not divide by the %d slices of %s",
                    r->store->count, r->slice->slices, r->slice->name);
  join->count = r->store->count;
  join->index = r->store->index;
  join->per_slice = join->count / r->slice->slices;
  join->store = r->store;
  if (gethostname(join->own.host, sizeof join->own.host - 1)) strcpy(join->own.host, "?");
  return VT_OK;
}

// Slurm and Open MPI start all kinds of processes: they count when asked for, or when there is
// exactly one for each host of the slice.
static bool launched(const reader *r, const char *wanted, const char *name) {
  const char *asked = get(r, "VTPU_HOSTS"), *count = get(r, name);
  int32_t hosts = r->slice->vms * r->slice->slices;
  if (asked) return !strcmp(asked, wanted);
  return count && hosts > 1 && atoi(count) == hosts;
}

// torchrun's processes each take a chip, although the process that started them was told that one
// has all.
static bool one_chip_each(const reader *r) {
  const char *count = get(r, "LOCAL_WORLD_SIZE"), *list = get(r, "TPU_PROCESS_ADDRESSES");
  const char *grid = get(r, "TPU_PROCESS_BOUNDS"), *chips = get(r, "TPU_VISIBLE_CHIPS");
  return count && atoi(count) > 1 && list && strchr(list, ',') && chips && !strchr(chips, ',') &&
         grid && !strcmp(grid, "1,1,1");
}

static vt_status find_source(const reader *r) {
  const char *which, *asked = get(r, "VTPU_HOSTS");
  const char *list = get(r, "TPU_PROCESS_ADDRESSES"), *names = get(r, "TPU_WORKER_HOSTNAMES");
  int32_t bounds[3] = {0};
  if (asked && strcmp(asked, "slurm") && strcmp(asked, "mpi") && strcmp(asked, "alone"))
    return vt_error(VT_INVALID_ARGUMENT, "VTPU_HOSTS is \"%.64s\"; it may be slurm, mpi or alone",
                    asked);
  if (asked && !strcmp(asked, "alone")) return VT_OK;
  const char *grid = get_either(r, "TPU_PROCESS_BOUNDS", "TPU_HOST_BOUNDS", &which);
  if (one_chip_each(r)) return from_addresses(r, list);
  if (grid) VT_TRY(read_bounds(which, grid, bounds));
  bool megascale = r->slice->slices > 1 && get(r, "MEGASCALE_COORDINATOR_ADDRESS") &&
                   get(r, "MEGASCALE_SLICE_ID");
  if (bounds[0] == 1 && bounds[1] == 1 && bounds[2] == 1 && !megascale) return VT_OK; // on purpose
  if (list && (megascale || strchr(list, ','))) return from_addresses(r, list);
  if (names && (megascale || strchr(names, ','))) return from_hostnames(r, names);
  if (launched(r, "slurm", slurm[0])) return from_slurm(r);
  if (launched(r, "mpi", ompi[0])) return from_ompi(r);
  if (r->store) return from_store(r);
  if (bounds[0])
    return vt_error(VT_INVALID_ARGUMENT,
                    "%s is %s, and nothing says where the other processes are: set "
                    "TPU_PROCESS_ADDRESSES (host:port of each) and CLOUD_TPU_TASK_ID",
                    which, grid);
  return VT_OK;
}

// ---- the grid -----------------------------------------------------------------------------------

static vt_status check_visible(const reader *r) {
  const char *visible = get(r, "TPU_VISIBLE_CHIPS");
  const vt_join *join = r->join;
  int32_t count = 1, chips = join->by_hosts ? r->slice->chips_per_vm
                                            : join->chips[0] * join->chips[1] * join->chips[2];
  bool numbers = true;
  if (!visible) return VT_OK;
  for (const char *at = visible; *at; at++) {
    count += *at == ',';
    numbers = numbers && (isdigit((unsigned char)*at) || *at == ',');
  }
  if (count == chips && numbers) return VT_OK;
  return vt_error(VT_INVALID_ARGUMENT,
                  "TPU_VISIBLE_CHIPS is \"%.64s\"; each process has %d chip%s of %s", visible,
                  chips, chips == 1 ? "" : "s", r->slice->name);
}

static vt_status read_grid(const reader *r) {
  const char *which, *per_which;
  const char *grid = get_either(r, "TPU_PROCESS_BOUNDS", "TPU_HOST_BOUNDS", &which);
  const char *per =
      get_either(r, "TPU_CHIPS_PER_PROCESS_BOUNDS", "TPU_CHIPS_PER_HOST_BOUNDS", &per_which);
  vt_join *join = r->join;
  const int32_t *dims = r->slice->dims;
  if (one_chip_each(r)) {
    if (join->per_slice != dims[0] * dims[1] * dims[2])
      return vt_error(VT_INVALID_ARGUMENT,
                      "torchrun has %d processes; %s has %d chips, one for each: "
                      "--nproc_per_node=%d",
                      join->per_slice, r->slice->name, dims[0] * dims[1] * dims[2],
                      dims[0] * dims[1] * dims[2]);
    for (int i = 0; i < 3; i++) {
      join->bounds[i] = dims[i];
      join->chips[i] = 1;
    }
    return VT_OK;
  }
  if (!grid && join->per_slice == r->slice->vms) {
    join->by_hosts = true;
    return VT_OK;
  }
  if (!grid && !per)
    return vt_error(VT_INVALID_ARGUMENT,
                    "%d processes, and %s has %d hosts: set TPU_PROCESS_BOUNDS and "
                    "TPU_CHIPS_PER_PROCESS_BOUNDS to say which chips each has",
                    join->per_slice, r->slice->name, r->slice->vms);
  if (grid) VT_TRY(read_bounds(which, grid, join->bounds));
  if (per) VT_TRY(read_bounds(per_which, per, join->chips));
  for (int i = 0; i < 3; i++) {
    if (!grid) join->bounds[i] = dims[i] / join->chips[i];
    if (!per) join->chips[i] = dims[i] / join->bounds[i];
    if ((int64_t)join->bounds[i] * join->chips[i] != dims[i])
      return vt_error(VT_INVALID_ARGUMENT,
                      "%s (%s) times %s (%s) should be the %d,%d,%d chips of %s", which,
                      grid ? grid : "not set", per_which, per ? per : "not set", dims[0], dims[1],
                      dims[2], r->slice->name);
  }
  int64_t count = (int64_t)join->bounds[0] * join->bounds[1] * join->bounds[2];
  if (count != join->per_slice)
    return vt_error(VT_INVALID_ARGUMENT, "%s (%s) is for %lld processes of a slice, there are %d",
                    which, grid ? grid : "not set", (long long)count, join->per_slice);
  return VT_OK;
}

static vt_status read_timeout(const reader *r, double *out_seconds) {
  int32_t seconds = 300;
  if (get(r, "VTPU_JOIN_TIMEOUT")) VT_TRY(get_number(r, "VTPU_JOIN_TIMEOUT", 1, 86400, &seconds));
  *out_seconds = seconds;
  return VT_OK;
}

static vt_status read_transport(const reader *r, vt_transport *out_transport) {
  static const char *const names[] = {"auto", "tcp", "ucx"}; // by vt_transport
  const char *transport = get(r, "VTPU_TRANSPORT");
  for (int i = 0; i < 3; i++) {
    *out_transport = (vt_transport)i;
    if (!strcmp(transport ? transport : "auto", names[i])) return VT_OK;
  }
  return vt_error(VT_INVALID_ARGUMENT,
                  "VTPU_TRANSPORT is \"%.64s\"; it can be tcp, ucx, or auto: memory that processes "
                  "of one host share, and TCP between hosts",
                  transport);
}

vt_status vt_join_read(const vt_slice *slice, vt_lookup lookup, void *user, const vt_store *store,
                       vt_arena *arena, vt_join *out_join) {
  reader r = {slice, lookup, user, store, arena, out_join};
  vt_assert(slice->slices >= 1 && slice->vms >= 1);
  *out_join = (vt_join){.count = 1, .per_slice = 1};
  VT_TRY(find_source(&r));
  if (out_join->count == 1) {
    *out_join = (vt_join){.count = 1, .per_slice = 1};
    return VT_OK;
  }
  VT_TRY(read_grid(&r));
  VT_TRY(check_visible(&r));
  VT_TRY(read_timeout(&r, &out_join->timeout_s));
  VT_TRY(read_transport(&r, &out_join->transport));
  const char *cookie = get(&r, "VTPU_COOKIE");
  out_join->cookie = cookie ? text_of(&r, cookie) : "";
  if (!out_join->names)
    out_join->names = VT_NEW_ARRAY(arena, const char *, (size_t)out_join->count);
  return VT_OK;
}

int32_t vt_join_process(const vt_join *join, const vt_place *place) {
  if (join->count == 1) return 0;
  if (join->by_hosts) return place->host;
  int32_t at[3];
  for (int i = 0; i < 3; i++) at[i] = place->coords[i] / join->chips[i];
  return at[0] + join->bounds[0] * (at[1] + join->bounds[1] * at[2]) +
         place->slice * join->per_slice;
}
