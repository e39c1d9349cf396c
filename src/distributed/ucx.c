// SPDX-License-Identifier: Apache-2.0
// ucx.c - see ucx.h. Of UCP: tagged messages, one worker, an endpoint to each process.
#include "distributed/ucx.h"

#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <ucp/api/ucp.h>

#include "distributed/hello.h"

#define LIBRARY "libucp.so.0"
enum { END_S = 5 };

// The functions that are used, by name.
#define FUNCTIONS(X)                                                                               \
  X(ucp_init_version)                                                                              \
  X(ucp_cleanup)                                                                                   \
  X(ucp_worker_create)                                                                             \
  X(ucp_worker_destroy)                                                                            \
  X(ucp_worker_get_address)                                                                        \
  X(ucp_worker_release_address)                                                                    \
  X(ucp_worker_get_efd)                                                                            \
  X(ucp_worker_arm)                                                                                \
  X(ucp_worker_progress)                                                                           \
  X(ucp_worker_flush_nbx)                                                                          \
  X(ucp_ep_create)                                                                                 \
  X(ucp_ep_close_nbx)                                                                              \
  X(ucp_tag_send_nbx)                                                                              \
  X(ucp_tag_recv_nbx)                                                                              \
  X(ucp_tag_recv_request_test)                                                                     \
  X(ucp_request_check_status)                                                                      \
  X(ucp_request_cancel)                                                                            \
  X(ucp_request_free)                                                                              \
  X(ucs_status_string)

typedef struct endpoint {
  ucp_ep_h ep;           // NULL: not connected, or closed
  uint64_t sends, takes; // tags of the first body in each direction
} endpoint;

struct vt_ucx {
  void *library;
#define DECLARE(name) __typeof__(name) *name;
  FUNCTIONS(DECLARE)
#undef DECLARE
  ucp_context_h context;
  ucp_worker_h worker;
  ucp_address_t *address;
  size_t address_size;
  int descriptor;
  int32_t count;
  endpoint *endpoints;
};

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static vt_status failed(const vt_ucx *x, const char *what, ucs_status_t why) {
  return vt_error(VT_UNAVAILABLE, "%s of UCX: %s", what, x->ucs_status_string(why));
}

// ---- the library --------------------------------------------------------------------------------

// Read once, when the library is loaded and initialised: handlers of signals and hooks of mmap have
// no place in somebody's Python. What the user has set stays.
static const char *const settings[][2] = {
    {"UCX_HANDLE_ERRORS", "none"},     {"UCX_DEBUG_SIGNO", "0"},       {"UCX_MEM_EVENTS", "n"},
    {"UCX_WARN_UNUSED_ENV_VARS", "n"}, {"UCX_MM_ERROR_HANDLING", "y"},
};
enum { SETTINGS = sizeof settings / sizeof settings[0] };

static vt_status load(vt_ucx *x) {
  x->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (!x->library)
    return vt_error(VT_UNAVAILABLE,
                    "VTPU_TRANSPORT is ucx, and UCX cannot be loaded (%s): install libucx0, or "
                    "leave the variable out",
                    dlerror());
#define FIND(name)                                                                                 \
  x->name = (__typeof__(x->name))(uintptr_t)dlsym(x->library, #name);                              \
  if (!x->name) return vt_error(VT_UNAVAILABLE, LIBRARY " has no function " #name);
  FUNCTIONS(FIND)
#undef FIND
  return VT_OK;
}

static vt_status initialise(vt_ucx *x) {
  ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                         .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP,
                         .estimated_num_eps = (size_t)x->count};
  ucs_status_t why = x->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, NULL, &x->context);
  return why == UCS_OK ? VT_OK : failed(x, "ucp_init", why);
}

static vt_status load_quietly(vt_ucx *x) {
  bool set[SETTINGS];
  for (int i = 0; i < SETTINGS; i++) {
    set[i] = !getenv(settings[i][0]);
    if (set[i]) setenv(settings[i][0], settings[i][1], 1);
  }
  vt_status st = load(x);
  if (!st) st = initialise(x);
  for (int i = 0; i < SETTINGS; i++)
    if (set[i]) unsetenv(settings[i][0]);
  return st;
}

static vt_status make_worker(vt_ucx *x) {
  ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                .thread_mode = UCS_THREAD_MODE_SERIALIZED};
  ucs_status_t why = x->ucp_worker_create(x->context, &params, &x->worker);
  if (why != UCS_OK) return failed(x, "ucp_worker_create", why);
  why = x->ucp_worker_get_efd(x->worker, &x->descriptor);
  if (why != UCS_OK) return failed(x, "ucp_worker_get_efd", why);
  why = x->ucp_worker_get_address(x->worker, &x->address, &x->address_size);
  if (why != UCS_OK) return failed(x, "ucp_worker_get_address", why);
  if (x->address_size <= VT_UCX_ADDRESS_MOST) return VT_OK;
  return vt_error(VT_UNAVAILABLE,
                  "UCX finds so many networks that its address has %zu bytes, of at most %d; "
                  "UCX_NET_DEVICES names those to use",
                  x->address_size, VT_UCX_ADDRESS_MOST);
}

static vt_status draw_tags(vt_ucx *x) {
  for (int32_t i = 0; i < x->count; i++)
    if (getrandom(&x->endpoints[i].sends, sizeof x->endpoints[i].sends, 0) !=
        sizeof x->endpoints[i].sends)
      return vt_error(VT_UNAVAILABLE, "getrandom");
  return VT_OK;
}

vt_status vt_ucx_create(int32_t count, vt_ucx **out) {
  vt_ucx *x = calloc(1, sizeof *x);
  sigset_t every, before;
  *out = NULL;
  if (!x) return vt_error_no_memory();
  x->count = count;
  x->endpoints = calloc((size_t)count, sizeof *x->endpoints);
  vt_status st = x->endpoints ? draw_tags(x) : vt_error_no_memory();
  sigfillset(&every); // of the thread that UCX starts for its connections
  pthread_sigmask(SIG_SETMASK, &every, &before);
  if (!st) st = load_quietly(x);
  if (!st) st = make_worker(x);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (st)
    vt_ucx_destroy(x);
  else
    *out = x;
  return st;
}

// Waits for a request, and gives it back. False: it did not end.
static bool complete(vt_ucx *x, void *request, double limit_s) {
  double until = now_s() + limit_s;
  if (!UCS_PTR_IS_PTR(request)) return true;
  while (x->ucp_request_check_status(request) == UCS_INPROGRESS) {
    if (now_s() > until) return false;
    if (!x->ucp_worker_progress(x->worker)) sched_yield();
  }
  x->ucp_request_free(request);
  return true;
}

static void close_endpoint(vt_ucx *x, int32_t peer) {
  ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                               .flags = UCP_EP_CLOSE_FLAG_FORCE};
  ucp_ep_h ep = x->endpoints[peer].ep;
  x->endpoints[peer].ep = NULL;
  if (ep) (void)complete(x, x->ucp_ep_close_nbx(ep, &param), END_S);
}

// The library stays loaded: it does not take well to leaving.
void vt_ucx_destroy(vt_ucx *x) {
  if (!x) return;
  for (int32_t i = 0; x->worker && i < x->count; i++) close_endpoint(x, i);
  if (x->address) x->ucp_worker_release_address(x->worker, x->address);
  if (x->worker) x->ucp_worker_destroy(x->worker);
  if (x->context) x->ucp_cleanup(x->context);
  free(x->endpoints);
  free(x);
}

// ---- connections --------------------------------------------------------------------------------

void vt_ucx_offer(const vt_ucx *x, int32_t peer, uint8_t bytes[VT_UCX_OFFER_BYTES]) {
  memset(bytes, 0, VT_UCX_OFFER_BYTES);
  if (!x) return;
  vt_put_u64(bytes, x->address_size);
  vt_put_u64(bytes + 8, x->endpoints[peer].sends);
  memcpy(bytes + 16, x->address, x->address_size);
}

// The stream says who is gone; without a handler UCX would end the process.
static void on_error(void *user, ucp_ep_h ep, ucs_status_t why) {
  (void)user;
  (void)ep;
  (void)why;
}

vt_status vt_ucx_connect(vt_ucx *x, int32_t peer, const uint8_t bytes[VT_UCX_OFFER_BYTES]) {
  uint64_t size = vt_get_u64(bytes);
  if (!size || size > VT_UCX_ADDRESS_MOST)
    return vt_error(VT_INVALID_ARGUMENT, "an address of UCX with %llu bytes",
                    (unsigned long long)size);
  ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                          UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                          UCP_EP_PARAM_FIELD_ERR_HANDLER,
                            .address = (const ucp_address_t *)(const void *)(bytes + 16),
                            .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                            .err_handler.cb = on_error};
  ucs_status_t why = x->ucp_ep_create(x->worker, &params, &x->endpoints[peer].ep);
  if (why != UCS_OK) {
    x->endpoints[peer].ep = NULL;
    return failed(x, "ucp_ep_create", why);
  }
  x->endpoints[peer].takes = vt_get_u64(bytes + 8);
  return VT_OK;
}

void vt_ucx_flush(vt_ucx *x, double limit_s) {
  ucp_request_param_t param = {0};
  (void)complete(x, x->ucp_worker_flush_nbx(x->worker, &param), limit_s);
}

// ---- bodies -------------------------------------------------------------------------------------

static vt_ucx_transfer started(void *request, size_t takes) {
  vt_ucx_transfer t = {.takes = takes};
  if (UCS_PTR_IS_PTR(request))
    t.request = request;
  else
    t.state = UCS_PTR_STATUS(request) == UCS_OK ? VT_UCX_DONE : VT_UCX_FAILED;
  return t;
}

vt_ucx_transfer vt_ucx_send(vt_ucx *x, int32_t to, uint64_t n, vt_bytes body) {
  const endpoint *e = &x->endpoints[to];
  ucp_request_param_t param = {0};
  if (!e->ep) return (vt_ucx_transfer){.state = VT_UCX_FAILED};
  return started(x->ucp_tag_send_nbx(e->ep, body.data, body.size, e->sends + n, &param), 0);
}

// Always a request, so that there is one place that checks the size.
vt_ucx_transfer vt_ucx_receive(vt_ucx *x, int32_t from, uint64_t n, uint8_t *body, size_t size) {
  const endpoint *e = &x->endpoints[from];
  ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL};
  if (!e->ep) return (vt_ucx_transfer){.state = VT_UCX_FAILED};
  return started(x->ucp_tag_recv_nbx(x->worker, body, size, e->takes + n, UINT64_MAX, &param),
                 size);
}

vt_ucx_state vt_ucx_look(vt_ucx *x, vt_ucx_transfer *t) {
  if (!t->request) return t->state;
  ucp_tag_recv_info_t info = {.length = t->takes};
  ucs_status_t status = t->takes ? x->ucp_tag_recv_request_test(t->request, &info)
                                 : x->ucp_request_check_status(t->request);
  if (status == UCS_INPROGRESS) return VT_UCX_UNDER_WAY;
  x->ucp_request_free(t->request);
  t->request = NULL;
  t->state = status == UCS_OK && info.length == t->takes ? VT_UCX_DONE : VT_UCX_FAILED;
  return t->state;
}

// A closed endpoint ends what was sent by it; what is awaited from a dead peer waits until it is
// cancelled.
bool vt_ucx_end(vt_ucx *x, int32_t peer, vt_ucx_transfer *t) {
  close_endpoint(x, peer);
  if (!t->request) return true;
  x->ucp_request_cancel(x->worker, t->request);
  bool ended = complete(x, t->request, END_S);
  *t = (vt_ucx_transfer){.state = VT_UCX_FAILED};
  return ended;
}

// ---- progress -----------------------------------------------------------------------------------

void vt_ucx_progress(vt_ucx *x) {
  while (x->ucp_worker_progress(x->worker)) {
  }
}

int vt_ucx_descriptor(const vt_ucx *x) {
  return x->descriptor;
}

bool vt_ucx_may_sleep(vt_ucx *x) {
  return x->ucp_worker_arm(x->worker) == UCS_OK;
}
