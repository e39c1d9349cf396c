// SPDX-License-Identifier: Apache-2.0
// identity_test.c - which identity proves what: service accounts of nodes, JSON web tokens, and
// that revoking a credential revokes everything derived from it.
#include "cloud/cloud_testing.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "cloud/api/account.h"
#include "cloud/api/call.h"
#include "cloud/api/password.h"
#include "cloud/open.h"

#define P     "/v1/projects/" TESTING_PROJECT
#define NODES "/v2/projects/" TESTING_PROJECT "/locations/us-central2-b/nodes"
#define QUEUE "/v2alpha1/projects/" TESTING_PROJECT "/locations/us-central2-b/queuedResources"
#define ROBOT "robot@" TESTING_PROJECT ".iam.gserviceaccount.com"

static int status_of(vt_testing *t, const char *token, const char *method, const char *url,
                     const char *body) {
  int status;
  json_decref(vt_testing_call_as(t, token, method, url, body, &status));
  return status;
}

// Adds "role:member" pairs to the project's policy, beside its owner.
static void grant(vt_testing *t, const char *const *pairs) {
  vt_text body = {0};
  vt_text_put(&body, "{\"policy\":{\"bindings\":[{\"role\":\"roles/owner\",\"members\":[\"user:"
                     "admin@vtpu.localhost\"]}");
  for (; *pairs; pairs += 2)
    vt_text_printf(&body, ",{\"role\":\"%s\",\"members\":[\"%s\"]}", pairs[0], pairs[1]);
  vt_text_put(&body, "]}}");
  json_decref(vt_testing_call(t, "POST", P ":setIamPolicy", vt_text_string(&body), 200));
  vt_text_free(&body);
}

static void make_robot(vt_testing *t) {
  json_decref(vt_testing_call(t, "POST", P "/serviceAccounts", "{\"accountId\":\"robot\"}", 200));
}

static const char *node_as(const char *email) {
  static char body[512];
  snprintf(body, sizeof body,
           "{\"acceleratorType\":\"v4-8\",\"runtimeVersion\":\"v2-alpha\",\"serviceAccount\":{"
           "\"email\":\"%s\"}}",
           email);
  return body;
}

static const char *queued_as(const char *email) {
  static char body[700];
  snprintf(body, sizeof body, "{\"tpu\":{\"nodeSpec\":[{\"nodeId\":\"q\",\"node\":%s}]}}",
           node_as(email));
  return body;
}

// --- service accounts of nodes -------------------------------------------------------------------

static void a_node_runs_as_an_account_of_its_own_project(void **state) {
  static const char *const foreign[] = {"100000000002-compute@developer.vtpu.localhost",
                                        "999-compute@developer.vtpu.localhost",
                                        "x-compute@developer.evil",
                                        "admin@vtpu.localhost",
                                        "robot@other-project.iam.gserviceaccount.com",
                                        "nobody@nowhere",
                                        "-compute@developer."};
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  make_robot(&t);
  json_decref(
      vt_testing_call(&t, "POST", "/v1/projects", "{\"projectId\":\"other-project\"}", 200));
  json_decref(vt_testing_call(&t, "POST", "/v1/projects/other-project/serviceAccounts",
                              "{\"accountId\":\"robot\"}", 200));
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
    json_t *reply = vt_testing_call(&t, "POST", NODES "?nodeId=a", node_as(foreign[i]), 403);
    assert_non_null(strstr(vt_testing_text(reply, "error.message"),
                           "Permission 'iam.serviceAccounts.actAs' denied on service account"));
    json_decref(reply);
    json_decref(
        vt_testing_call(&t, "POST", QUEUE "?queuedResourceId=q", queued_as(foreign[i]), 403));
  }
  const char *const own[] = {ROBOT, "100000000001-compute@developer.vtpu.localhost", "default", ""};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
    char url[128];
    snprintf(url, sizeof url, NODES "?nodeId=n%zu", i);
    json_decref(vt_testing_call(&t, "POST", url, node_as(own[i]), 200));
  }
  vt_testing_reconcile(&t);
  // Credentials of an account are its tokens, and a deleted account yields none.
  const char *path = "instance/service-accounts/default/token";
  char *text = vt_testing_metadata(&t, "n0", path);
  json_t *reply = json_loads(text, 0, NULL);
  json_t *me = vt_testing_call_as(&t, vt_testing_text(reply, "access_token"), "GET", "/vtpu/v1/me",
                                  NULL, &(int){0});
  assert_string_equal(vt_testing_text(me, "email"), ROBOT);
  json_decref(me);
  json_decref(vt_testing_call(&t, "DELETE", P "/serviceAccounts/" ROBOT, NULL, 200));
  assert_int_equal(
      status_of(&t, vt_testing_text(reply, "access_token"), "GET", "/vtpu/v1/me", NULL), 401);
  assert_int_equal(vt_testing_metadata_status(&t, "n0", path), 404);
  json_decref(reply);
  free(text);
  vt_testing_close(&t);
}

// A row written before this check existed, or by hand: the worker still gets nothing.
static void a_stored_foreign_account_gives_no_token(void **state) {
  static const char *const foreign[] = {"100000000002-compute@developer.vtpu.localhost",
                                        "admin@vtpu.localhost",
                                        "robot@other-project.iam.gserviceaccount.com"};
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  json_decref(
      vt_testing_call(&t, "POST", "/v1/projects", "{\"projectId\":\"other-project\"}", 200));
  json_decref(vt_testing_call(&t, "POST", "/v1/projects/other-project/serviceAccounts",
                              "{\"accountId\":\"robot\"}", 200));
  vt_testing_create(&t, "a", "v4-8");
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
    char body[256];
    snprintf(body, sizeof body, "{\"serviceAccount\":{\"email\":\"%s\"}}", foreign[i]);
    assert_null(vt_store_run(t.cloud->store, NULL, "UPDATE nodes SET body = ?", "s", body));
    assert_int_equal(vt_testing_metadata_status(&t, "a", "instance/service-accounts/default/token"),
                     404);
    int64_t known;
    assert_null(vt_store_int(t.cloud->store, &known, 0,
                             "SELECT 1 FROM accounts WHERE email = ? AND kind = 'service' AND "
                             "project = 'demo-project'",
                             "s", foreign[i]));
    assert_int_equal(known, 0);
  }
  vt_testing_close(&t);
}

static void running_as_an_account_takes_act_as(void **state) {
  static const char *const alone[] = {"roles/tpu.admin",
                                      "user:eve@example.com",
                                      "roles/compute.admin",
                                      "user:eve@example.com",
                                      "roles/owner",
                                      "serviceAccount:" ROBOT,
                                      NULL};
  static const char *const both[] = {"roles/tpu.admin", "user:eve@example.com",
                                     "roles/iam.serviceAccountUser", "user:eve@example.com", NULL};
  static const struct try { const char *method, *url, *body; }
  tries[] = {{"PATCH", NODES "/kept?updateMask=metadata",
              "{\"metadata\":{\"ssh-keys\":\"eve:ssh-rsa A\"}}"},
             {"PATCH", NODES "/kept?updateMask=labels,metadata",
              "{\"metadata\":{\"startup-script\":\"x\"}}"},
             {"POST", "/compute/v1/projects/" TESTING_PROJECT "/setCommonInstanceMetadata",
              "{\"items\":[{\"key\":\"ssh-keys\",\"value\":\"eve:ssh-rsa A\"}]}"},
             {"POST", QUEUE "?queuedResourceId=q", NULL},
             {"POST", NODES "?nodeId=a", NULL}};
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  make_robot(&t);
  json_decref(vt_testing_call(&t, "POST", NODES "?nodeId=kept", node_as(ROBOT), 200));
  vt_testing_reconcile(&t);
  char *eve = vt_testing_account(&t, "eve@example.com", "user");
  char *host = vt_testing_metadata(&t, "kept", "instance/name"), url[256];
  snprintf(url, sizeof url,
           "/compute/v1/projects/" TESTING_PROJECT "/zones/us-central2-b/instances/%s/setMetadata",
           host);
  grant(&t, alone);
  for (int may = 0; may < 2; may++) {
    int want = may ? 200 : 403;
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
      const char *body = tries[i].body                    ? tries[i].body
                         : strstr(tries[i].url, "queued") ? queued_as(ROBOT)
                                                          : node_as(may ? "" : ROBOT);
      if (may && strstr(tries[i].url, "setCommon")) continue; // asks for compute.projects.* too
      assert_int_equal(status_of(&t, eve, tries[i].method, tries[i].url, body), want);
    }
    if (!may) assert_int_equal(status_of(&t, eve, "POST", NODES "?nodeId=a", node_as("")), 403);
    if (!may) assert_int_equal(status_of(&t, eve, "POST", url, "{\"items\":[]}"), 403);
    // Calls that do not affect a worker's identity still work.
    assert_int_equal(
        status_of(&t, eve, "PATCH", NODES "/kept?updateMask=labels", "{\"labels\":{\"a\":\"b\"}}"),
        200);
    grant(&t, both);
  }
  free(host);
  free(eve);
  vt_testing_close(&t);
}

// Account managers cannot sign in as the accounts.
static void account_admins_have_no_keys(void **state) {
  static const char *const roles[] = {"roles/iam.serviceAccountAdmin", "user:eve@example.com",
                                      "roles/owner", "serviceAccount:" ROBOT, NULL};
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  make_robot(&t);
  char *eve = vt_testing_account(&t, "eve@example.com", "user");
  grant(&t, roles);
  assert_int_equal(status_of(&t, eve, "GET", P "/serviceAccounts/" ROBOT, NULL), 200);
  assert_int_equal(status_of(&t, eve, "POST", P "/serviceAccounts/" ROBOT "/keys", "{}"), 403);
  assert_int_equal(status_of(&t, eve, "POST", P ":setIamPolicy", "{}"), 403);
  assert_int_equal(status_of(&t, eve, "POST", NODES "?nodeId=a", node_as(ROBOT)), 403);
  free(eve);
  vt_testing_close(&t);
}

static char *worker_token(vt_testing *t, const char *node) {
  char *text = vt_testing_metadata(t, node, "instance/service-accounts/default/token");
  json_t *reply = json_loads(text, 0, NULL);
  char *token = strdup(vt_testing_text(reply, "access_token"));
  json_decref(reply);
  free(text);
  return token;
}

static void tokens_of_workers_end_with_them(void **state) {
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  vt_testing_create(&t, "a", "v4-8");
  vt_testing_create(&t, "b", "v4-8");
  char *a = worker_token(&t, "a"), *b = worker_token(&t, "b");
  assert_int_equal(status_of(&t, a, "GET", NODES, NULL), 200);
  // Role changes take effect at once.
  grant(&t, (const char *const[]){NULL});
  assert_int_equal(status_of(&t, a, "GET", NODES, NULL), 403);
  json_decref(vt_testing_call(&t, "POST", NODES "/a:stop", "{}", 200));
  json_decref(vt_testing_call(&t, "DELETE", NODES "/b", NULL, 200));
  vt_testing_reconcile(&t);
  assert_int_equal(status_of(&t, a, "GET", "/vtpu/v1/me", NULL), 401);
  assert_int_equal(status_of(&t, b, "GET", "/vtpu/v1/me", NULL), 401);
  free(a);
  free(b);
  // A default account deleted by its owner does not come back as an editor.
  vt_testing_create(&t, "c", "v4-8");
  json_decref(vt_testing_call(
      &t, "DELETE", P "/serviceAccounts/100000000001-compute@developer.vtpu.localhost", NULL, 200));
  assert_int_equal(vt_testing_metadata_status(&t, "c", "instance/service-accounts/default/token"),
                   404);
  vt_testing_close(&t);
}

// --- JSON web tokens -----------------------------------------------------------------------------

static void put_base64url(vt_text *out, const unsigned char *bytes, size_t size) {
  unsigned char *text = malloc(size * 4 / 3 + 8);
  EVP_EncodeBlock(text, bytes, (int)size);
  for (unsigned char *p = text; *p && *p != '='; p++)
    vt_text_put_n(out, *p == '+' ? "-" : *p == '/' ? "_" : (const char *)p, 1);
  free(text);
}

// Signs header and claims as they are, with a PEM key; the caller frees the result.
static char *sign(const char *pem, const char *header, const char *claims) {
  vt_text out = {0};
  put_base64url(&out, (const unsigned char *)header, strlen(header));
  vt_text_put(&out, ".");
  put_base64url(&out, (const unsigned char *)claims, strlen(claims));
  BIO *bio = BIO_new_mem_buf(pem, -1);
  EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL);
  EVP_MD_CTX *context = EVP_MD_CTX_new();
  unsigned char signature[512];
  size_t size = sizeof signature;
  assert_int_equal(EVP_DigestSignInit(context, NULL, EVP_sha256(), NULL, key), 1);
  assert_int_equal(EVP_DigestSign(context, signature, &size,
                                  (const unsigned char *)vt_text_string(&out), out.size),
                   1);
  EVP_MD_CTX_free(context);
  EVP_PKEY_free(key);
  BIO_free(bio);
  vt_text_put(&out, ".");
  put_base64url(&out, signature, size);
  char *copy = strdup(vt_text_string(&out));
  vt_text_free(&out);
  return copy;
}

typedef struct robot {
  char id[41], *pem;
} robot;

static robot make_key(vt_testing *t) {
  robot r;
  make_robot(t);
  assert_null(vt_sa_key_create(t->cloud, ROBOT, &r.pem, r.id));
  return r;
}

// In the text, "N" becomes the cloud's time in seconds, "K" the key id.
static char *fill(vt_testing *t, const robot *r, const char *text) {
  vt_text out = {0};
  for (; *text; text++) {
    long long plus = 0;
    if (*text == 'N') {
      if (text[1] == '+' || text[1] == '-') {
        char *end;
        plus = strtoll(text + 1, &end, 10);
        text = end - 1;
      }
      vt_text_printf(&out, "%lld", (long long)(vt_cloud_now(t->cloud) / VT_SECOND) + plus);
    } else if (*text == 'K') {
      vt_text_put(&out, r->id);
    } else {
      vt_text_put_n(&out, text, 1);
    }
  }
  char *copy = strdup(vt_text_string(&out));
  vt_text_free(&out);
  return copy;
}

#define ME   "\"iss\":\"" ROBOT "\",\"sub\":\"" ROBOT "\""
#define AUD  "\"aud\":\"https://tpu.googleapis.com/\""
#define HEAD "{\"alg\":\"RS256\",\"kid\":\"K\"}"

static void only_sound_jwts_speak(void **state) {
  static const struct row {
    int want;
    const char *header, *claims;
  } rows[] = {
      {200, HEAD, "{" ME "," AUD ",\"iat\":N,\"exp\":N+3600}"},
      {200, "{\"alg\":\"RS256\"}", "{" ME "," AUD ",\"iat\":N,\"exp\":N+3600}"},
      {200, HEAD, "{" ME ",\"aud\":\"http://localhost/\",\"iat\":N-100,\"exp\":N+100}"},
      {200, HEAD, "{" ME ",\"scope\":\"a\",\"iat\":N,\"exp\":N+3600}"},
      {200, HEAD,
       "{" ME ",\"aud\":[\"https://x.y/\",\"https://tpu.googleapis.com/\"],\"iat\":N,\"exp\":N+9}"},
      {200, HEAD, "{" ME "," AUD ",\"iat\":N,\"nbf\":N,\"exp\":N+3600}"},
      // times
      {401, HEAD, "{" ME "," AUD ",\"iat\":-9223372036854775808,\"exp\":9223372036854775807}"},
      {401, HEAD, "{" ME "," AUD ",\"iat\":-9223372036854775808,\"exp\":N+3600}"},
      {401, HEAD, "{" ME "," AUD ",\"iat\":-9223372036854775807,\"exp\":N+9}"},
      {401, HEAD, "{" ME "," AUD ",\"iat\":9223372036854775807,\"exp\":-9223372036854775808}"},
      {401, HEAD, "{" ME "," AUD ",\"iat\":9223372036854775807,\"exp\":9223372036854775807}"},
      {401, HEAD, "{" ME "," AUD ",\"iat\":0,\"exp\":N+3600}"},
      {401, HEAD, "{" ME "," AUD ",\"exp\":N+3600}"},
      {401, HEAD, "{" ME "," AUD ",\"iat\":N}"},
      {401, HEAD, "{" ME "," AUD ",\"iat\":N,\"exp\":N+3700}"},
      {401, HEAD, "{" ME "," AUD ",\"iat\":N,\"exp\":1e18}"},
      {401, HEAD, "{" ME "," AUD ",\"iat\":N,\"exp\":N+9.5}"},
      {401, HEAD, "{" ME "," AUD ",\"iat\":N.0,\"exp\":N+9}"},
      {401, HEAD, "{" ME "," AUD ",\"iat\":N,\"exp\":\"N+3600\"}"},
      {401, HEAD, "{" ME "," AUD ",\"iat\":N,\"exp\":null}"},
      {401, HEAD, "{" ME "," AUD ",\"iat\":N-7200,\"exp\":N-3600}"},
      {401, HEAD, "{" ME "," AUD ",\"iat\":N+4000,\"exp\":N+7000}"},
      {401, HEAD, "{" ME "," AUD ",\"iat\":N,\"nbf\":N+4000,\"exp\":N+3600}"},
      {401, HEAD, "{" ME "," AUD ",\"iat\":N,\"nbf\":\"0\",\"exp\":N+3600}"},
      {401, HEAD, "{" ME "," AUD ",\"iat\":N+9,\"exp\":N+3}"},
      // names
      {401, HEAD, "{" ME ",\"iat\":N,\"exp\":N+3600}"},
      {401, HEAD, "{" ME ",\"aud\":\"https://evil.example/\",\"iat\":N,\"exp\":N+3600}"},
      {401, HEAD, "{" ME ",\"aud\":\"https://evilgoogleapis.com/\",\"iat\":N,\"exp\":N+3600}"},
      {401, HEAD,
       "{" ME ",\"aud\":\"https://tpu.googleapis.com@evil.example/\",\"iat\":N,\"exp\":N+3600}"},
      {401, HEAD,
       "{" ME ",\"aud\":\"https://evil.example/?.googleapis.com\",\"iat\":N,\"exp\":N+3600}"},
      {401, HEAD,
       "{" ME ",\"aud\":\"https://oauth2.googleapis.com/token\",\"iat\":N,\"exp\":N+3600}"},
      {401, HEAD, "{" ME ",\"aud\":7,\"iat\":N,\"exp\":N+3600}"},
      {401, HEAD,
       "{\"iss\":\"" ROBOT "\",\"sub\":\"admin@vtpu.localhost\"," AUD ",\"iat\":N,\"exp\":N+9}"},
      {401, HEAD, "{\"iss\":\"" ROBOT "\",\"sub\":7," AUD ",\"iat\":N,\"exp\":N+9}"},
      {401, HEAD, "{\"iss\":\"admin@vtpu.localhost\"," AUD ",\"iat\":N,\"exp\":N+9}"},
      {401, HEAD, "{" ME "," AUD ",\"iat\":N,\"exp\":N+9,\"exp\":N+9}"},
      {401, HEAD, "{" ME ",\"iss\":\"admin@vtpu.localhost\"," AUD ",\"iat\":N,\"exp\":N+9}"},
      {401, HEAD, "[]"},
      // headers
      {401, "{\"alg\":\"none\",\"kid\":\"K\"}", "{" ME "," AUD ",\"iat\":N,\"exp\":N+9}"},
      {401, "{\"alg\":\"HS256\",\"kid\":\"K\"}", "{" ME "," AUD ",\"iat\":N,\"exp\":N+9}"},
      {401, "{\"alg\":\"rs256\",\"kid\":\"K\"}", "{" ME "," AUD ",\"iat\":N,\"exp\":N+9}"},
      {401, "{\"kid\":\"K\"}", "{" ME "," AUD ",\"iat\":N,\"exp\":N+9}"},
      {401, "{\"alg\":\"RS256\",\"kid\":\"x\"}", "{" ME "," AUD ",\"iat\":N,\"exp\":N+9}"},
      {401, "{\"alg\":\"RS256\",\"kid\":7}", "{" ME "," AUD ",\"iat\":N,\"exp\":N+9}"},
      {401, "{\"alg\":\"RS256\",\"kid\":\"\"}", "{" ME "," AUD ",\"iat\":N,\"exp\":N+9}"},
      {401, "{\"alg\":\"RS256\",\"kid\":\"K\",\"crit\":[\"x\"]}",
       "{" ME "," AUD ",\"iat\":N,\"exp\":N+9}"},
      {401, "{\"alg\":\"none\",\"alg\":\"RS256\"}", "{" ME "," AUD ",\"iat\":N,\"exp\":N+9}"}};
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  robot r = make_key(&t);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char *header = fill(&t, &r, rows[i].header), *claims = fill(&t, &r, rows[i].claims);
    char *jwt = sign(r.pem, header, claims);
    int status = status_of(&t, jwt, "GET", "/vtpu/v1/me", NULL);
    if (status != rows[i].want) fail_msg("%s %s: %d", header, claims, status);
    free(header);
    free(claims);
    free(jwt);
  }
  // Longer than any of ours, and not truncated.
  char *large = malloc(40000);
  memset(large, 'A', 39999);
  memcpy(large, "eyJ", 3);
  large[10000] = large[20000] = '.';
  large[39999] = 0;
  char *cut = strndup(large, 200);
  assert_int_equal(status_of(&t, cut, "GET", "/vtpu/v1/me", NULL), 401);
  free(cut);
  free(large);
  free(r.pem);
  vt_testing_close(&t);
}

// A token for `assertion`, which the caller frees; NULL when refused.
static char *exchange(vt_testing *t, const char *assertion) {
  char *body = malloc(strlen(assertion) + 200);
  int status;
  sprintf(body,
          "{\"grant_type\":\"urn:ietf:params:oauth:grant-type:jwt-bearer\",\"assertion\":\"%s\"}",
          assertion);
  json_t *reply = vt_testing_call_as(t, NULL, "POST", "/token", body, &status);
  free(body);
  char *token = status == 200 ? strdup(vt_testing_text(reply, "access_token")) : NULL;
  json_decref(reply);
  return token;
}

static void assertions_are_for_the_token_endpoint(void **state) {
  static const struct row {
    bool good;
    const char *audience;
  } rows[] = {{true, "https://oauth2.googleapis.com/token"},
              {true, "http://localhost/token"},
              {true, "https://accounts.google.com/o/oauth2/token"},
              {false, "https://tpu.googleapis.com/"},
              {false, "https://evil.example/token"},
              {false, "https://localhost:444/token"}};
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  robot r = make_key(&t);
  char *header = fill(&t, &r, HEAD);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char text[512];
    snprintf(text, sizeof text, "{" ME ",\"aud\":\"%s\",\"scope\":\"x\",\"iat\":N,\"exp\":N+3600}",
             rows[i].audience);
    char *claims = fill(&t, &r, text), *jwt = sign(r.pem, header, claims),
         *token = exchange(&t, jwt);
    if ((token != NULL) != rows[i].good) fail_msg("%s: %s", rows[i].audience, token ? "yes" : "no");
    free(token);
    free(claims);
    free(jwt);
  }
  free(header);
  free(r.pem);
  vt_testing_close(&t);
}

// --- ends ----------------------------------------------------------------------------------------

// The cookie of a session made with `token`, "" when refused.
static void sign_in(vt_testing *t, const char *token, char out_cookie[256]) {
  vt_call call;
  char body[256];
  *out_cookie = 0;
  vt_call_init(&call, t->cloud, "POST", "/vtpu/v1/session");
  call.body_size = (size_t)snprintf(body, sizeof body, "{\"token\":\"%s\"}", token);
  call.body_text = body;
  vt_call_add_header(&call, "X-Vtpu-Console", "1");
  vt_call_run(&call);
  for (size_t i = 0; call.status == 200 && i < call.reply_headers.size; i++)
    if (strcmp(call.reply_headers.data[i].name, "Set-Cookie") == 0)
      snprintf(out_cookie, 256, "%s", call.reply_headers.data[i].value);
  out_cookie[strcspn(out_cookie, ";")] = 0;
  vt_call_fini(&call);
}

static int by_cookie(vt_testing *t, const char *cookie) {
  vt_call call;
  vt_call_init(&call, t->cloud, "GET", "/vtpu/v1/me");
  vt_call_add_header(&call, "Cookie", cookie);
  vt_call_run(&call);
  int status = call.status;
  vt_call_fini(&call);
  return status;
}

static void a_key_takes_all_with_it(void **state) {
  vt_testing t;
  char cookie[256], url[256];
  (void)state;
  vt_testing_open(&t, "");
  robot r = make_key(&t);
  char *header = fill(&t, &r, HEAD),
       *claims =
           fill(&t, &r, "{" ME ",\"aud\":\"http://localhost/token\",\"iat\":N,\"exp\":N+3600}"),
       *jwt = sign(r.pem, header, claims), *token = exchange(&t, jwt);
  assert_non_null(token);
  sign_in(&t, token, cookie);
  assert_int_equal(by_cookie(&t, cookie), 200);
  snprintf(url, sizeof url, P "/serviceAccounts/" ROBOT "/keys/%s", r.id);
  json_decref(vt_testing_call(&t, "DELETE", url, NULL, 200));
  json_decref(vt_testing_call(&t, "DELETE", url, NULL, 404));
  assert_int_equal(status_of(&t, token, "GET", "/vtpu/v1/me", NULL), 401);
  assert_int_equal(by_cookie(&t, cookie), 401);
  assert_null(exchange(&t, jwt));
  free(header);
  free(claims);
  free(jwt);
  free(token);
  free(r.pem);
  vt_testing_close(&t);
}

static void a_session_lives_no_longer_than_its_token(void **state) {
  vt_testing t;
  char *token, cookie[256], other[256], hash[65];
  const vt_token_start hour = {"admin@vtpu.localhost", "access", "", "", VT_HOUR},
                       endless = {"admin@vtpu.localhost", "access", "", "", 0};
  (void)state;
  vt_testing_open(&t, "");
  assert_null(vt_token_create(t.cloud, &hour, &token));
  sign_in(&t, token, cookie);
  vt_memory_free(token);
  vt_testing_advance(&t, 3599);
  assert_int_equal(by_cookie(&t, cookie), 200);
  vt_testing_advance(&t, 1);
  assert_int_equal(by_cookie(&t, cookie), 401);
  assert_null(vt_token_create(t.cloud, &endless, &token));
  sign_in(&t, token, cookie);
  sign_in(&t, t.token, other);
  vt_token_hash(token, hash);
  assert_null(vt_token_revoke(t.cloud, hash));
  assert_int_equal(by_cookie(&t, cookie), 401);
  assert_int_equal(by_cookie(&t, other), 200);
  vt_memory_free(token);
  // Revoking a refresh token revokes its access tokens, and the sessions made with those.
  const vt_token_start refresh = {"admin@vtpu.localhost", "refresh", "", "password", 0};
  char body[256];
  assert_null(vt_token_create(t.cloud, &refresh, &token));
  snprintf(body, sizeof body, "{\"grant_type\":\"refresh_token\",\"refresh_token\":\"%s\"}", token);
  json_t *reply = vt_testing_call(&t, "POST", "/token", body, 200);
  sign_in(&t, vt_testing_text(reply, "access_token"), cookie);
  assert_int_equal(by_cookie(&t, cookie), 200);
  snprintf(body, sizeof body, "{\"token\":\"%s\"}", token);
  char url[256];
  snprintf(url, sizeof url, "/revoke?token=%s", token);
  json_decref(vt_testing_call(&t, "POST", url, "{}", 200));
  assert_int_equal(
      status_of(&t, vt_testing_text(reply, "access_token"), "GET", "/vtpu/v1/me", NULL), 401);
  assert_int_equal(by_cookie(&t, cookie), 401);
  json_decref(reply);
  vt_memory_free(token);
  vt_testing_close(&t);
}

// --- accounts, their passwords and their tokens --------------------------------------------------

// Signs in with a password, from an address; returns the status.
static int sign_in_from(vt_testing *t, const char *peer, const char *email, const char *password,
                        char *out_cookie) {
  vt_call call;
  char body[2400];
  vt_call_init(&call, t->cloud, "POST", "/vtpu/v1/session");
  call.peer = peer;
  call.body_size = (size_t)snprintf(body, sizeof body, "{\"email\":\"%s\",\"password\":\"%s\"}",
                                    email, password);
  call.body_text = body;
  vt_call_add_header(&call, "X-Vtpu-Console", "1");
  vt_call_run(&call);
  for (size_t i = 0; out_cookie && call.status == 200 && i < call.reply_headers.size; i++)
    if (strcmp(call.reply_headers.data[i].name, "Set-Cookie") == 0)
      snprintf(out_cookie, 256, "%.*s", (int)strcspn(call.reply_headers.data[i].value, ";"),
               call.reply_headers.data[i].value);
  int status = call.status;
  vt_call_fini(&call);
  return status;
}

#define ACCOUNT "/vtpu/v1/accounts/ann@example.com"
#define RIGHT   "correct horse"

static void make_ann(vt_testing *t) {
  json_decref(vt_testing_call(
      t, "POST", "/vtpu/v1/accounts",
      "{\"email\":\"ann@example.com\",\"role\":\"user\",\"password\":\"" RIGHT "\"}", 200));
}

static bool told_of(vt_testing *t, const char *kind, const char *text) {
  json_t *events = vt_testing_call(t, "GET", "/vtpu/v1/events", NULL, 200), *event;
  size_t i;
  bool found = false;
  json_array_foreach(json_object_get(events, "events"), i,
                     event) if (strcmp(vt_testing_text(event, "kind"), kind) == 0 &&
                                strstr(vt_testing_text(event, "detail"), text)) found = true;
  json_decref(events);
  return found;
}

static void guesses_get_slower(void **state) {
  vt_testing t;
  char peer[32];
  (void)state;
  vt_testing_open(&t, "");
  make_ann(&t);
  assert_int_equal(sign_in_from(&t, "127.0.0.9", "ann@example.com", RIGHT, NULL), 200);
  // From ever new addresses: the account has to wait, and a nonexistent one waits alike.
  const char *const who[] = {"ann@example.com", "nobody@example.com"};
  for (int w = 0; w < 2; w++) {
    for (int i = 0; i < 5; i++) {
      snprintf(peer, sizeof peer, "127.0.%d.%d", w, i);
      assert_int_equal(sign_in_from(&t, peer, who[w], "wrong horse", NULL), 401);
    }
    assert_int_equal(sign_in_from(&t, "127.0.7.7", who[w], "wrong horse", NULL), 429);
    assert_int_equal(sign_in_from(&t, "127.0.7.7", who[w], RIGHT, NULL), 429);
  }
  assert_true(told_of(&t, "sign-in", "wrong passwords from 127.0.0.4"));
  // Others' guesses do not lock Ann out of an address she has signed in from.
  assert_int_equal(sign_in_from(&t, "127.0.0.9", "ann@example.com", RIGHT, NULL), 200);
  for (int i = 0; i < 5; i++) sign_in_from(&t, "127.0.1.1", "ann@example.com", "wrong horse", NULL);
  // After the free attempts, each wrong one doubles the wait, up to a quarter of an hour.
  int64_t waited = 0;
  for (int i = 0; i < 14; i++) {
    int64_t wait = 0;
    while (sign_in_from(&t, "127.0.8.8", "bob@example.com", "x", NULL) == 429) {
      vt_testing_advance(&t, 1);
      wait++;
    }
    assert_true(i < 6 || wait >= waited);
    waited = wait;
  }
  assert_int_equal(waited, 256);
  // An address that tries every account.
  for (int i = 0; i < 40; i++) {
    snprintf(peer, sizeof peer, "u%d@example.com", i);
    int status = sign_in_from(&t, "127.0.3.3", peer, "x", NULL);
    assert_int_equal(status, i < 30 ? 401 : 429);
  }
  vt_testing_advance(&t, 7200);
  assert_int_equal(sign_in_from(&t, "127.0.3.3", "ann@example.com", RIGHT, NULL), 200);
  // Even an invalid name is logged as valid text.
  for (int i = 0; i < 6; i++) sign_in_from(&t, "127.0.4.4", "<b>\\n@", "x", NULL);
  assert_true(told_of(&t, "sign-in", "127.0.4.4"));
  vt_testing_close(&t);
}

static int64_t hand_ns = INT64_C(1800000000) * VT_SECOND;

static int64_t by_hand(int clock_id) {
  (void)clock_id;
  return hand_ns;
}

// Hashing takes threads from other calls: unknown addresses get few of them; one that has signed in
// before is not limited.
static void strangers_hash_in_turn(void **state) {
  vt_testing t;
  char who[32];
  (void)state;
  vt_testing_open_with_clock(&t, "", by_hand);
  make_ann(&t);
  assert_int_equal(sign_in_from(&t, "127.0.0.9", "ann@example.com", RIGHT, NULL), 200);
  for (int second = 0; second < 3; second++) {
    int hashed = 0;
    for (int i = 0; i < 9; i++) {
      snprintf(who, sizeof who, "127.0.%d.%d", second, i);
      hashed += sign_in_from(&t, who, who, "wrong horse", NULL) == 401;
    }
    assert_int_equal(hashed, second ? 2 : 3);
    assert_int_equal(sign_in_from(&t, "127.0.0.9", "ann@example.com", RIGHT, NULL), 200);
    hand_ns += VT_SECOND;
  }
  vt_testing_close(&t);
}

typedef struct guessing {
  vt_testing *t;
  atomic_bool stop;
} guessing;

static void *guess(void *argument) {
  guessing *g = argument;
  char peer[32];
  for (int i = 0; !atomic_load(&g->stop); i++) {
    snprintf(peer, sizeof peer, "127.1.%d.%d", i / 200 % 200, i % 200);
    sign_in_from(g->t, peer, peer, "wrong horse", NULL);
  }
  return NULL;
}

// The lock is free while a password is hashed.
static void others_go_on_while_it_hashes(void **state) {
  vt_testing t;
  pthread_t thread;
  (void)state;
  vt_testing_open(&t, "");
  guessing g = {.t = &t};
  assert_int_equal(pthread_create(&thread, NULL, guess, &g), 0);
  for (bool seen = false; !seen;) {
    pthread_mutex_lock(&t.cloud->lock);
    seen = vt_password_is_hashing(t.cloud);
    pthread_mutex_unlock(&t.cloud->lock);
  }
  json_decref(vt_testing_call(&t, "GET", "/vtpu/v1/me", NULL, 200));
  atomic_store(&g.stop, true);
  pthread_join(thread, NULL);
  vt_testing_close(&t);
}

static void a_password_is_changed(void **state) {
  vt_testing t;
  char cookie[256], kept[256], body[1600];
  (void)state;
  vt_testing_open(&t, "");
  make_ann(&t);
  json_t *made = vt_testing_call(&t, "POST", ACCOUNT "/tokens", "{}", 200);
  const char *ann = vt_testing_text(made, "token");
  assert_int_equal(sign_in_from(&t, "127.0.0.9", "ann@example.com", RIGHT, cookie), 200);
  assert_int_equal(
      status_of(&t, ann, "POST", "/vtpu/v1/me:setPassword", "{\"password\":\"another horse\"}"),
      403);
  assert_int_equal(by_cookie(&t, cookie), 200);
  assert_int_equal(status_of(&t, ann, "POST", "/vtpu/v1/me:setPassword",
                             "{\"password\":\"another horse\",\"oldPassword\":\"" RIGHT "\"}"),
                   200);
  assert_int_equal(by_cookie(&t, cookie), 401);
  assert_int_equal(status_of(&t, ann, "GET", "/vtpu/v1/me", NULL), 200);
  assert_int_equal(sign_in_from(&t, "127.0.0.9", "ann@example.com", RIGHT, NULL), 401);
  assert_int_equal(sign_in_from(&t, "127.0.0.9", "ann@example.com", "another horse", kept), 200);
  // So can an administrator; too short and too long passwords are refused.
  json_decref(vt_testing_call(&t, "PATCH", ACCOUNT, "{\"password\":\"a third horse\"}", 200));
  assert_int_equal(by_cookie(&t, kept), 401);
  json_decref(vt_testing_call(&t, "PATCH", ACCOUNT, "{\"password\":\"short\"}", 400));
  json_decref(vt_testing_call(&t, "PATCH", ACCOUNT, "{\"password\":7}", 400));
  json_decref(vt_testing_call(&t, "PATCH", ACCOUNT, "{}", 400));
  snprintf(body, sizeof body, "{\"password\":\"%01400d\"}", 0);
  json_decref(vt_testing_call(&t, "PATCH", ACCOUNT, body, 400));
  assert_int_equal(sign_in_from(&t, "127.0.0.9", "ann@example.com", "a third horse", NULL), 200);
  json_decref(made);
  vt_testing_close(&t);
}

static void a_disabled_account_is_out_for_good(void **state) {
  vt_testing t;
  char cookie[256];
  (void)state;
  vt_testing_open(&t, "");
  make_ann(&t);
  json_t *made = vt_testing_call(&t, "POST", ACCOUNT "/tokens", "{\"days\":7}", 200);
  const char *ann = vt_testing_text(made, "token");
  assert_int_equal(sign_in_from(&t, "127.0.0.9", "ann@example.com", RIGHT, cookie), 200);
  assert_int_equal(status_of(&t, ann, "PATCH", ACCOUNT, "{\"role\":\"admin\"}"), 403);
  json_decref(vt_testing_call(&t, "PATCH", ACCOUNT, "{\"disabled\":true}", 200));
  assert_int_equal(status_of(&t, ann, "GET", "/vtpu/v1/me", NULL), 401);
  assert_int_equal(by_cookie(&t, cookie), 401);
  assert_int_equal(sign_in_from(&t, "127.0.0.9", "ann@example.com", RIGHT, NULL), 401);
  json_decref(vt_testing_call(&t, "POST", ACCOUNT "/tokens", "{}", 400));
  json_decref(vt_testing_call(&t, "PATCH", ACCOUNT, "{\"disabled\":false}", 200));
  assert_int_equal(status_of(&t, ann, "GET", "/vtpu/v1/me", NULL), 401);
  assert_int_equal(by_cookie(&t, cookie), 401);
  assert_int_equal(sign_in_from(&t, "127.0.0.9", "ann@example.com", RIGHT, NULL), 200);
  json_decref(made);
  // The last administrator cannot be locked out.
  const char *me = "/vtpu/v1/accounts/admin@vtpu.localhost";
  json_decref(vt_testing_call(&t, "PATCH", me, "{\"disabled\":true}", 400));
  json_decref(vt_testing_call(&t, "PATCH", me, "{\"role\":\"user\"}", 400));
  json_decref(vt_testing_call(&t, "PATCH", "/vtpu/v1/accounts/x@y", "{\"disabled\":true}", 404));
  // A disabled service account cannot sign, and its workers get nothing.
  robot r = make_key(&t);
  char *header = fill(&t, &r, HEAD),
       *claims =
           fill(&t, &r, "{" ME ",\"aud\":\"http://localhost/token\",\"iat\":N,\"exp\":N+3600}"),
       *jwt = sign(r.pem, header, claims), *token = exchange(&t, jwt);
  json_decref(vt_testing_call(&t, "PATCH", "/vtpu/v1/accounts/" ROBOT, "{\"disabled\":true}", 200));
  assert_int_equal(status_of(&t, token, "GET", "/vtpu/v1/me", NULL), 401);
  assert_null(exchange(&t, jwt));
  json_decref(vt_testing_call(&t, "POST", NODES "?nodeId=a", node_as(ROBOT), 403));
  json_decref(vt_testing_call(&t, "PATCH", "/vtpu/v1/accounts/" ROBOT,
                              "{\"password\":\"correct horse\"}", 400));
  free(header);
  free(claims);
  free(jwt);
  free(token);
  free(r.pem);
  vt_testing_close(&t);
}

static void tokens_are_listed_and_revoked(void **state) {
  vt_testing t;
  char cookie[256], url[160];
  (void)state;
  vt_testing_open(&t, "");
  make_ann(&t);
  json_t *made = vt_testing_call(&t, "POST", ACCOUNT "/tokens", "{\"days\":7}", 200);
  json_t *other = vt_testing_call(&t, "POST", ACCOUNT "/tokens", "{}", 200);
  const char *ann = vt_testing_text(made, "token"), *spare = vt_testing_text(other, "token");
  sign_in(&t, ann, cookie);
  json_t *list = vt_testing_call_as(&t, ann, "GET", "/vtpu/v1/me/tokens", NULL, &(int){0}), *item;
  const char *id = "";
  size_t i;
  assert_int_equal(json_array_size(json_object_get(list, "tokens")), 4);
  json_array_foreach(json_object_get(list, "tokens"), i, item) {
    assert_null(strstr(ann, vt_testing_text(item, "id")));
    if (json_is_true(json_object_get(item, "current"))) id = vt_testing_text(item, "id");
  }
  assert_int_equal(strlen(id), 16);
  // Only one's own, except for administrators.
  snprintf(url, sizeof url, "/vtpu/v1/me/tokens/%s", id);
  json_decref(vt_testing_call(&t, "DELETE", url, NULL, 404));
  snprintf(url, sizeof url, ACCOUNT "/tokens/%s", id);
  assert_int_equal(status_of(&t, ann, "DELETE", url, NULL), 403);
  json_decref(vt_testing_call(&t, "DELETE", url, NULL, 200));
  assert_int_equal(status_of(&t, ann, "GET", "/vtpu/v1/me", NULL), 401);
  assert_int_equal(by_cookie(&t, cookie), 401);
  assert_int_equal(status_of(&t, spare, "GET", "/vtpu/v1/me", NULL), 200);
  json_decref(vt_testing_call(&t, "DELETE", ACCOUNT "/tokens", NULL, 200));
  assert_int_equal(status_of(&t, spare, "GET", "/vtpu/v1/me", NULL), 401);
  json_decref(list);
  json_decref(made);
  // Expiry is in days.
  made = vt_testing_call(&t, "POST", ACCOUNT "/tokens", "{\"days\":7}", 200);
  vt_testing_advance(&t, 7 * 86400 - 1);
  assert_int_equal(status_of(&t, vt_testing_text(made, "token"), "GET", "/vtpu/v1/me", NULL), 200);
  vt_testing_advance(&t, 1);
  assert_int_equal(status_of(&t, vt_testing_text(made, "token"), "GET", "/vtpu/v1/me", NULL), 401);
  static const char *const bad[] = {"0", "-1", "1e17", "1.5", "\"7\"", "9223372036854775807"};
  for (i = 0; i < sizeof bad / sizeof *bad; i++) {
    char body[64];
    snprintf(body, sizeof body, "{\"days\":%s}", bad[i]);
    json_decref(vt_testing_call(&t, "POST", ACCOUNT "/tokens", body, 400));
  }
  json_decref(made);
  json_decref(other);
  vt_testing_close(&t);
}

static void emails_are_plain(void **state) {
  static const char *const bad[] = {"a",        "@b",      "a@",         "a b@c", "a\\n@b", "a@b:c",
                                    "user:a@b", "a\\\"@b", "\xc3\xa9@b", "a/b@c", "<a>@b"};
  vt_testing t;
  char body[128];
  (void)state;
  vt_testing_open(&t, "");
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    snprintf(body, sizeof body, "{\"email\":\"%s\"}", bad[i]);
    json_decref(vt_testing_call(&t, "POST", "/vtpu/v1/accounts", body, 400));
  }
  vt_testing_close(&t);
}

// The token of a start: one with the account, others on request, and each revokes the previous one.
static void a_start_makes_one_token(void **state) {
  const char *me = "/vtpu/v1/me", *who = "root@example.com";
  vt_testing t;
  char *first, *none, *second;
  (void)state;
  vt_testing_open(&t, "");
  assert_null(vt_cloud_seed(t.cloud, TESTING_PROJECT, who, VT_TOKEN_FIRST, &first));
  assert_int_equal(status_of(&t, first, "GET", me, NULL), 200);
  assert_null(vt_cloud_seed(t.cloud, TESTING_PROJECT, who, VT_TOKEN_FIRST, &none));
  assert_null(none);
  assert_int_equal(status_of(&t, first, "GET", me, NULL), 200);
  assert_null(vt_cloud_seed(t.cloud, TESTING_PROJECT, who, VT_TOKEN_NEW, &second));
  assert_int_equal(status_of(&t, first, "GET", me, NULL), 401);
  assert_int_equal(status_of(&t, second, "GET", me, NULL), 200);
  vt_testing_advance(&t, 90 * 86400);
  assert_int_equal(status_of(&t, second, "GET", me, NULL), 401);
  vt_memory_free(first);
  vt_memory_free(second);
  vt_testing_close(&t);
}

static void one_process_has_a_state_folder(void **state) {
  char folder[] = "/tmp/vtpu-identity-XXXXXX", want[32];
  vt_cloud_options options;
  vt_cloud *first, *second;
  (void)state;
  assert_non_null(mkdtemp(folder));
  vt_cloud_options_default(&options);
  options.state_dir = folder;
  assert_null(vt_cloud_open(&options, &first));
  vt_status st = vt_cloud_open(&options, &second);
  assert_int_equal(vt_status_code(st), VT_UNAVAILABLE);
  snprintf(want, sizeof want, "in use by process %d", (int)getpid());
  assert_non_null(strstr(vt_status_message(st), want));
  vt_status_free(st);
  vt_cloud_close(first);
  assert_null(vt_cloud_open(&options, &second));
  vt_cloud_close(second);
  vt_testing_remove(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_node_runs_as_an_account_of_its_own_project),
      cmocka_unit_test(a_stored_foreign_account_gives_no_token),
      cmocka_unit_test(running_as_an_account_takes_act_as),
      cmocka_unit_test(account_admins_have_no_keys),
      cmocka_unit_test(tokens_of_workers_end_with_them),
      cmocka_unit_test(only_sound_jwts_speak),
      cmocka_unit_test(assertions_are_for_the_token_endpoint),
      cmocka_unit_test(a_key_takes_all_with_it),
      cmocka_unit_test(a_session_lives_no_longer_than_its_token),
      cmocka_unit_test(guesses_get_slower),
      cmocka_unit_test(strangers_hash_in_turn),
      cmocka_unit_test(others_go_on_while_it_hashes),
      cmocka_unit_test(a_password_is_changed),
      cmocka_unit_test(a_disabled_account_is_out_for_good),
      cmocka_unit_test(tokens_are_listed_and_revoked),
      cmocka_unit_test(emails_are_plain),
      cmocka_unit_test(a_start_makes_one_token),
      cmocka_unit_test(one_process_has_a_state_folder),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
