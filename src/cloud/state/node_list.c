// SPDX-License-Identifier: Apache-2.0
// node_list.c - lists of nodes: one page of rows, each as its JSON text in a reply. A node's text
// follows from its row, and the row's version grows with every change, so the text is made once per
// version and form and then copied. Purely a cache: emptied when full, filled only from committed
// rows (a list runs outside transactions).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/map.h"
#include "base/memory.h"
#include "cloud/api/handlers.h"
#include "cloud/state/node.h"
#include "cloud/store/json.h"

enum { CACHE_BYTES = 128 << 20 };

typedef struct text {
  int64_t version;
  size_t size;
  char bytes[];
} text;

struct vt_node_texts {
  vt_map texts; // text_key to text
  size_t bytes;
};

typedef struct text_key {
  int64_t uid;
  uint64_t form; // version of the API, enums as numbers, pretty
} text_key;

typedef struct item {
  int64_t uid, version;
  const char *zone, *id;
} item;

static void empty(struct vt_node_texts *cache) {
  for (size_t i = 0; i < cache->texts.size; i++) free(cache->texts.entries[i].value);
  vt_map_free(&cache->texts);
  *cache = (struct vt_node_texts){0};
}

void vt_node_texts_free(struct vt_node_texts *cache) {
  if (cache) empty(cache);
  free(cache);
}

static vt_status load_view(vt_call *call, int64_t uid, json_t **out_view) {
  vt_node node;
  bool found;
  *out_view = NULL;
  VT_TRY(vt_node_load_uid(call->cloud, &call->arena, uid, &node, &found));
  vt_status st = found ? vt_node_view(call->cloud, &node, call->api_name, out_view) : VT_OK;
  vt_node_fini(&node);
  return st;
}

// The view as it appears in a list; a pretty-printed one is two levels deep there.
static void write_text(const vt_call *call, json_t *view, vt_text *out) {
  bool pretty = vt_call_pretty(call);
  vt_schema_shape(vt_message_find("Node"), call->api, vt_call_enums_as_numbers(call), view);
  char *plain = vt_json_text(view, pretty ? JSON_INDENT(2) : JSON_COMPACT);
  for (const char *p = plain; *p;) { // a line break is never inside a JSON string
    size_t n = strcspn(p, "\n");
    n += p[n] == '\n';
    vt_text_put_n(out, p, n);
    if (p[n - 1] == '\n') vt_text_put(out, "    ");
    p += n;
  }
  vt_memory_free(plain);
}

typedef struct entry {
  struct vt_node_texts *cache;
  text_key key;
  int64_t version;
  const vt_text *bytes;
  const text *made;
} entry;

// Outlives the call, so no attempt watches it.
static vt_status put_entry(void *user) {
  entry *e = user;
  void **slot = vt_map_at(&e->cache->texts, &e->key, sizeof e->key);
  text *old = *slot, *made = malloc(sizeof *made + e->bytes->size);
  if (!made) return vt_error_no_memory();
  *made = (text){e->version, e->bytes->size};
  memcpy(made->bytes, vt_text_string(e->bytes), made->size);
  e->cache->bytes += sizeof *made + made->size - (old ? sizeof *old + old->size : 0);
  free(old);
  e->made = *slot = made;
  return VT_OK;
}

static vt_status find_text(vt_call *call, const item *of, const text **out_text) {
  vt_cloud *cloud = call->cloud;
  struct vt_node_texts *cache = cloud->node_texts;
  if (!cache) cache = cloud->node_texts = calloc(1, sizeof *cache);
  if (!cache) return vt_error_no_memory();
  if (cache->bytes > CACHE_BYTES) empty(cache);
  text_key key = {of->uid, (uint64_t)call->api << 2 | (uint64_t)vt_call_pretty(call) << 1 |
                               vt_call_enums_as_numbers(call)};
  const text *known = vt_map_find(&cache->texts, &key, sizeof key);
  *out_text = known;
  if (known && known->version == of->version) return VT_OK;
  json_t *view;
  vt_text bytes = {0};
  VT_TRY(load_view(call, of->uid, &view));
  if (!view) return vt_error(VT_INTERNAL, "node %lld is listed but has no row", (long long)of->uid);
  write_text(call, view, &bytes);
  json_decref(view);
  entry e = {cache, key, of->version, &bytes, NULL};
  vt_status st = vt_attempt_keep(put_entry, &e);
  vt_text_free(&bytes);
  *out_text = e.made;
  return st;
}

static vt_status reply_as_text(vt_call *call, const item *items, size_t count, const char *token) {
  bool pretty = vt_call_pretty(call);
  vt_assert(!vt_store_in_transaction(call->cloud->store));
  vt_text_put(&call->raw, pretty ? "{\n  \"nodes\": [" : "{\"nodes\":[");
  for (size_t i = 0; i < count; i++) {
    const text *one;
    VT_TRY(find_text(call, &items[i], &one));
    if (i) vt_text_put(&call->raw, ",");
    if (pretty) vt_text_put(&call->raw, "\n    ");
    vt_text_put_n(&call->raw, one->bytes, one->size);
  }
  vt_text_put(&call->raw, pretty && count ? "\n  ]" : "]");
  if (token)
    vt_text_printf(&call->raw,
                   pretty ? ",\n  \"nextPageToken\": \"%s\"" : ",\"nextPageToken\":\"%s\"", token);
  vt_text_put(&call->raw, pretty ? "\n}\n" : "}\n");
  call->content_type = VT_CALL_JSON;
  return VT_OK;
}

static vt_status reply_as_json(vt_call *call, const item *items, size_t count, const char *token) {
  json_t *list = json_array();
  call->reply = json_pack("{s:o}", "nodes", list);
  for (size_t i = 0; i < count; i++) {
    json_t *view;
    VT_TRY(load_view(call, items[i].uid, &view));
    if (view) json_array_append_new(list, view);
  }
  if (token) json_object_set_new(call->reply, "nextPageToken", json_string(token));
  return VT_OK;
}

vt_status vt_nodes_list(vt_call *call) {
  vt_page page;
  vt_rows *rows;
  VT_ARRAY(item) items = {0};
  VT_TRY(vt_call_page(call, 500, 1000, &page));
  if (vt_call_all_zones(call))
    VT_TRY(vt_store_query(call->cloud->store, &rows,
                          "SELECT uid, version, zone, id FROM nodes WHERE project = ? AND (zone, "
                          "id) > (?, ?) ORDER BY zone, id LIMIT ?",
                          "sssi", call->project, page.after_zone, page.after, page.limit + 1));
  else
    VT_TRY(vt_store_query(call->cloud->store, &rows,
                          "SELECT uid, version, zone, id FROM nodes WHERE project = ? AND zone = ? "
                          "AND id > ? ORDER BY id LIMIT ?",
                          "sssi", call->project, vt_call_param(call, "zone"), page.after,
                          page.limit + 1));
  while (vt_rows_next(rows)) {
    const char *zone = vt_rows_text(rows, 2), *id = vt_rows_text(rows, 3);
    item one = {vt_rows_int(rows, 0), vt_rows_int(rows, 1),
                vt_arena_copy(&call->arena, zone, strlen(zone)),
                vt_arena_copy(&call->arena, id, strlen(id))};
    vt_array_push_in(&call->arena, &items, one);
  }
  VT_TRY(vt_rows_end(rows));
  size_t count = items.size > (size_t)page.limit ? (size_t)page.limit : items.size;
  const char *token = NULL;
  if (items.size > count)
    token = vt_call_page_token(call, items.data[count - 1].zone, items.data[count - 1].id);
  return call->wants_json ? reply_as_json(call, items.data, count, token)
                          : reply_as_text(call, items.data, count, token);
}
