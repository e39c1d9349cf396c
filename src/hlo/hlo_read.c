// SPDX-License-Identifier: Apache-2.0
// hlo_read.c - what both readers share: computations, attributes, types, locations, and what is
// found out once everything is read.
#include <inttypes.h>
#include <string.h>

#include "base/wire.h"
#include "hlo/hlo_reader.h"

// Which form it is --------------------------------------------------------------------------------

bool vt_hlo_is_text(vt_bytes program) {
  static const char word[] = "HloModule";
  const char *at = (const char *)program.data, *end = at + program.size;
  for (;;) {
    while (at < end && strchr(" \t\r\n", *at)) at++;
    if (end - at < 2 || at[0] != '/' || at[1] != '/') break;
    while (at < end && *at != '\n') at++;
  }
  return (size_t)(end - at) > sizeof word && !memcmp(at, word, sizeof word - 1);
}

typedef struct outline {
  bool whole;        // the bytes are fields to the end
  bool seen[8];      // bytes in field 1 .. 7
  bool entry_id;     // a number in field 6
  vt_bytes inner[8]; // the last bytes of each
} outline;

static outline outline_of(vt_bytes bytes) {
  outline o = {0};
  vt_wire wire = vt_wire_open(bytes);
  vt_wire_field field;
  for (bool more = true; more;) {
    vt_status st = vt_wire_next(&wire, &field, &more);
    vt_status_free(st);
    if (st) return o;
    if (!more || field.number >= 8) continue;
    if (field.wire == 2) o.seen[field.number] = true, o.inner[field.number] = field.bytes;
    if (field.wire == 0 && field.number == 6) o.entry_id = true;
  }
  o.whole = true;
  return o;
}

bool vt_hlo_module_in(vt_bytes program, vt_bytes *out_module, vt_bytes *out_config) {
  *out_config = (vt_bytes){0};
  *out_module = program;
  for (int depth = 0; depth < 3; depth++) { // HloSnapshot has a HloProto, and that the module
    outline o = outline_of(*out_module);
    if (!o.whole) return false;
    if (o.seen[3] && (o.entry_id || o.seen[2])) return true;
    if (!o.seen[1]) return false;
    *out_module = o.inner[1];
    *out_config = o.seen[2] ? o.inner[2] : (vt_bytes){0};
  }
  return false;
}

bool vt_hlo_is_message(vt_bytes program) {
  vt_bytes module, config;
  if (!program.size || (program.data[0] & 7) != 2 || program.data[0] >> 3 > 4) return false;
  if (vt_hlo_module_in(program, &module, &config)) return true;
  for (size_t i = 0; i < program.size && i < 64; i++)
    if (program.data[i] < '\t' || (program.data[i] > '\r' && program.data[i] < ' ')) return true;
  return false;
}

// Parts -------------------------------------------------------------------------------------------

const char *vt_hlo_kept(vt_hlo_reader *r, vt_string string) {
  return string.size ? vt_arena_copy(r->arena, string.data, string.size) : "";
}

vt_hlo_computation *vt_hlo_new_computation(vt_hlo_reader *r, vt_string name) {
  vt_hlo_computation *computation = VT_NEW(r->arena, vt_hlo_computation);
  computation->name = vt_hlo_kept(r, name);
  if (r->last)
    r->last->next = computation;
  else
    r->hlo->first = computation;
  return r->last = computation;
}

vt_hlo_instruction *vt_hlo_new_instruction(vt_hlo_reader *r, vt_hlo_computation *computation) {
  vt_hlo_instruction *instruction = VT_NEW(r->arena, vt_hlo_instruction);
  instruction->name = instruction->opcode = "";
  instruction->loc = &vt_loc_unknown;
  if (computation->last)
    computation->last->next = instruction;
  else
    computation->first = instruction;
  return computation->last = instruction;
}

void vt_hlo_new_call(vt_hlo_reader *r, vt_hlo_instruction *instruction, vt_string name,
                     int64_t id) {
  vt_hlo_call_site site = {instruction, instruction->called_count++, name, id};
  vt_array_push_in(r->arena, &r->calls, site);
}

vt_hlo_attr *vt_hlo_attr_at(vt_hlo_reader *r, vt_hlo_instruction *instruction, vt_hlo_field field) {
  const vt_hlo_attr *known = vt_hlo_find(instruction, field);
  return known ? (vt_hlo_attr *)(uintptr_t)known : vt_hlo_add_attr(r->arena, instruction, field);
}

void vt_hlo_push_ints(vt_hlo_reader *r, vt_hlo_attr *attr, uint32_t count, const int64_t *ints) {
  if (attr->room - attr->count < count || !attr->ints) {
    uint32_t room = 2 * attr->count + count + 1;
    int64_t *grown = VT_NEW_ARRAY(r->arena, int64_t, room);
    if (attr->count) memcpy(grown, attr->ints, attr->count * sizeof *grown);
    attr->ints = grown;
    attr->room = room;
  }
  if (count) memcpy(attr->ints + attr->count, ints, count * sizeof *ints);
  attr->count += count;
}

static vt_status spend(vt_hlo_reader *r, int64_t numbers) {
  if (numbers < 0 || numbers > r->budget)
    return vt_error(VT_RESOURCE_EXHAUSTED, "the lists of devices are too long");
  r->budget -= numbers;
  return VT_OK;
}

vt_status vt_hlo_set_rows(vt_hlo_reader *r, vt_hlo_attr *attr, uint32_t count,
                          const vt_hlo_row *rows) {
  uint32_t width = 0;
  for (uint32_t i = 0; i < count; i++)
    if (rows[i].count > width) width = rows[i].count;
  VT_TRY(spend(r, (int64_t)count * width));
  attr->rows = count;
  attr->count = count * width;
  attr->ints = VT_NEW_ARRAY(r->arena, int64_t, attr->count + 1);
  for (uint32_t i = 0; i < count; i++)
    for (uint32_t k = 0; k < width; k++)
      attr->ints[i * width + k] = k < rows[i].count ? rows[i].ints[k] : -1;
  return VT_OK;
}

vt_status vt_hlo_set_iota_rows(vt_hlo_reader *r, vt_hlo_attr *attr, int64_t rows, int64_t width,
                               uint32_t rank, const int64_t *dims, const int64_t *order) {
  int64_t count = 1, strides[VT_MAX_RANK], stride = 1;
  uint64_t seen = 0;
  bool good = rank >= 1 && rank <= VT_MAX_RANK && rows >= 1 && width >= 1;
  for (uint32_t d = 0; good && d < rank; d++)
    good = dims[d] >= 1 && !__builtin_mul_overflow(count, dims[d], &count) && count <= 1 << 20;
  for (uint32_t d = 0; good && d < rank && order; d++) {
    good = order[d] >= 0 && order[d] < rank && !(seen >> order[d] & 1);
    if (good) seen |= (uint64_t)1 << order[d];
  }
  if (!good || rows > count || width > count || rows * width != count)
    return vt_error(VT_INVALID_ARGUMENT, "the list of devices does not fit its shape");
  VT_TRY(spend(r, count));
  for (uint32_t d = rank; d-- > 0; stride *= dims[d]) strides[d] = stride;
  attr->rows = (uint32_t)rows;
  attr->count = (uint32_t)count;
  attr->ints = VT_NEW_ARRAY(r->arena, int64_t, count);
  for (int64_t i = 0; i < count; i++) {
    int64_t rest = i, device = 0;
    for (uint32_t d = rank; d-- > 0;) {
      int64_t from = order ? order[d] : d;
      device += rest % dims[from] * strides[from];
      rest /= dims[from];
    }
    attr->ints[i] = device;
  }
  return VT_OK;
}

static vt_status check_mesh(const vt_hlo_mesh_groups *g, int64_t *out_devices) {
  int64_t devices = 1;
  bool good = g->mesh.size >= 1 && g->mesh.size <= VT_MAX_MESH_AXES &&
              g->axes.size <= (size_t)4 * VT_MAX_MESH_AXES;
  for (size_t i = 0; good && i < g->mesh.size; i++)
    good = g->mesh.data[i].size >= 1 &&
           !__builtin_mul_overflow(devices, g->mesh.data[i].size, &devices) && devices <= 1 << 20;
  vt_mesh mesh = {.axis_count = (uint32_t)g->mesh.size, .axes = g->mesh.data};
  for (size_t i = 0; good && i < g->axes.size; i++) {
    good = vt_axis_fits(&mesh, g->axes.data[i]);
    for (size_t k = 0; k < i; k++)
      good = good && !vt_axes_overlap(g->axes.data[k], g->axes.data[i]);
  }
  *out_devices = devices;
  return good ? VT_OK : vt_error(VT_INVALID_ARGUMENT, "groups that are no axes of their mesh");
}

vt_status vt_hlo_set_mesh_rows(vt_hlo_reader *r, vt_hlo_attr *attr, const vt_hlo_mesh_groups *g) {
  int64_t devices, width;
  vt_hlo_attr order = {0};
  VT_TRY(check_mesh(g, &devices));
  vt_mesh mesh = {.axis_count = (uint32_t)g->mesh.size,
                  .axes = g->mesh.data,
                  .device_count = (uint32_t)g->ids.size,
                  .device_ids = g->ids.data};
  if (g->dims.size) {
    if (g->order.size && g->order.size != g->dims.size)
      return vt_error(VT_INVALID_ARGUMENT, "dimensions are missing");
    VT_TRY(vt_hlo_set_iota_rows(r, &order, 1, devices, (uint32_t)g->dims.size, g->dims.data,
                                g->order.size ? g->order.data : NULL));
    mesh.device_count = order.count;
    mesh.device_ids = order.ints;
  }
  if (mesh.device_count && mesh.device_count != devices)
    return vt_error(VT_INVALID_ARGUMENT, "the list of devices does not fit the mesh");
  VT_TRY(spend(r, devices));
  attr->ints = VT_NEW_ARRAY(r->arena, int64_t, devices);
  vt_mesh_groups(&mesh, (uint32_t)g->axes.size, g->axes.data, attr->ints, &width);
  attr->rows = (uint32_t)(devices / width);
  attr->count = (uint32_t)devices;
  return VT_OK;
}

const vt_hlo_shape *vt_hlo_new_shape(vt_hlo_reader *r, vt_hlo_shape shape) {
  vt_hlo_shape *kept = VT_NEW(r->arena, vt_hlo_shape);
  *kept = shape;
  return kept;
}

vt_status vt_hlo_check_type(vt_hlo_reader *r, vt_dtype dtype, uint32_t rank, const int64_t *dims,
                            vt_type *out_type) {
  *out_type = (vt_type){.dtype = dtype};
  if (!dtype) return vt_error(VT_UNIMPLEMENTED, "its element type is not supported");
  if (dtype == VT_TOKEN && rank) return vt_error(VT_INVALID_ARGUMENT, "an array of tokens");
  if (rank > VT_MAX_RANK)
    return vt_error(VT_INVALID_ARGUMENT, "an array of %" PRIu32 " dimensions", rank);
  VT_TRY(vt_type_check((vt_type){dtype, (int32_t)rank, dims}));
  *out_type = vt_type_make(r->arena, dtype, (int32_t)rank, dims);
  return VT_OK;
}

vt_status vt_hlo_check_layout(vt_hlo_reader *r, vt_type type, uint32_t count, const int64_t *order,
                              const char **out_layout) {
  *out_layout = NULL;
  if (!count) return VT_OK;
  uint64_t seen = 0;
  bool rows = true, good = count == (uint32_t)type.rank;
  for (uint32_t i = 0; good && i < count; i++) {
    good = order[i] >= 0 && order[i] < type.rank && !(seen >> order[i] & 1);
    if (good) seen |= (uint64_t)1 << order[i];
    rows = rows && order[i] == type.rank - 1 - (int32_t)i;
  }
  if (!good)
    return vt_error(VT_INVALID_ARGUMENT, "a layout is no order of %d dimensions", type.rank);
  if (rows) return VT_OK;
  vt_text text = {0};
  for (uint32_t i = 0; i < count; i++) vt_text_printf(&text, "%s%" PRId64, i ? "," : "{", order[i]);
  vt_text_put(&text, "}");
  *out_layout = vt_arena_copy(r->arena, text.data, text.size);
  vt_text_free(&text);
  return VT_OK;
}

vt_dict_value *vt_hlo_new_dict(vt_hlo_reader *r) {
  vt_dict_value *dict = VT_NEW(r->arena, vt_dict_value);
  dict->kind = VT_DICT_DICT;
  return dict;
}

void vt_hlo_push_entry(vt_hlo_reader *r, vt_dict_value *dict, vt_string name, vt_string value) {
  size_t n = dict->count++;
  if (!(n & (n + 1))) { // grows at 0, 1, 3, 7
    vt_dict_entry *grown = VT_NEW_ARRAY(r->arena, vt_dict_entry, 2 * n + 1);
    if (n) memcpy(grown, dict->entries, n * sizeof *grown);
    dict->entries = grown;
  }
  vt_dict_value *kept = VT_NEW(r->arena, vt_dict_value);
  kept->kind = VT_DICT_STRING;
  kept->string = (vt_string){vt_hlo_kept(r, value), value.size};
  dict->entries[n] = (vt_dict_entry){{vt_hlo_kept(r, name), name.size}, kept};
}

// Locations ---------------------------------------------------------------------------------------

static int32_t line_of(int64_t number) {
  return number > 0 && number < INT32_MAX ? (int32_t)number : 0;
}

// A frame is made after its parent; one that comes later is left out, which ends every circle.
static const vt_loc *frame_loc(vt_hlo_reader *r, int64_t frame) {
  if (frame < 1 || (uint64_t)frame > r->frames.size) return NULL;
  if (!r->frame_locs) {
    r->frame_locs = VT_NEW_ARRAY(r->arena, const vt_loc *, r->frames.size);
    for (size_t i = 0; i < r->frames.size; i++) {
      vt_loc *loc = VT_NEW(r->arena, vt_loc);
      int64_t place = r->frames.data[i].line, parent = r->frames.data[i].column;
      *loc = vt_loc_unknown;
      if (place >= 1 && (uint64_t)place <= r->places.size) {
        const vt_hlo_place *at = &r->places.data[place - 1];
        if (at->frame >= 1 && (uint64_t)at->frame <= r->files.size)
          loc->file = vt_hlo_kept(r, r->files.data[at->frame - 1]);
        loc->line = line_of(at->line);
        loc->column = line_of(at->column);
      }
      if (parent >= 1 && (uint64_t)parent <= i) loc->caller = r->frame_locs[parent - 1];
      r->frame_locs[i] = loc;
    }
  }
  return r->frame_locs[frame - 1];
}

const vt_loc *vt_hlo_new_loc(vt_hlo_reader *r, const vt_hlo_place *place) {
  const vt_loc *frame = frame_loc(r, place->frame);
  if (!frame && !place->name.size && !place->file.size) return &vt_loc_unknown;
  vt_loc *loc = VT_NEW(r->arena, vt_loc);
  *loc = frame ? *frame : vt_loc_unknown;
  loc->name = vt_hlo_kept(r, place->name);
  if (frame) return loc;
  loc->file = vt_hlo_kept(r, place->file);
  loc->line = line_of(place->line);
  loc->column = line_of(place->column);
  return loc;
}

vt_status vt_hlo_blame(vt_status st, const vt_hlo_instruction *instruction) {
  const vt_loc *loc = instruction->loc;
  if (st && loc->file[0]) st = vt_status_wrap(st, "%s:%d", loc->file, loc->line);
  return vt_status_wrap(st, *instruction->opcode ? "%s %s" : "%s%s", instruction->opcode,
                        instruction->name);
}

// The end -----------------------------------------------------------------------------------------

static vt_status find_calls(vt_hlo_reader *r, bool named) {
  for (size_t i = 0; i < r->calls.size; i++) {
    const vt_hlo_call_site *site = &r->calls.data[i];
    vt_hlo_instruction *user = site->instruction;
    if (!user->called)
      user->called = VT_NEW_ARRAY(r->arena, vt_hlo_computation *, user->called_count);
    vt_hlo_computation *called =
        named ? vt_map_find(&r->computations, site->name.data, site->name.size)
              : vt_map_find(&r->computations, &site->id, sizeof site->id);
    user->called[site->index] = called;
    if (called) continue;
    vt_status st =
        named ? vt_error(VT_INVALID_ARGUMENT, "there is no computation %.*s", (int)site->name.size,
                         site->name.data)
              : vt_error(VT_INVALID_ARGUMENT, "there is no computation %" PRId64, site->id);
    return vt_hlo_blame(st, user);
  }
  return VT_OK;
}

static vt_status find_params(vt_hlo_reader *r, vt_hlo_computation *c) {
  uint32_t count = 0;
  for (vt_hlo_instruction *i = c->first; i; i = i->next) count += !strcmp(i->opcode, "parameter");
  c->param_count = count;
  c->params = VT_NEW_ARRAY(r->arena, vt_hlo_instruction *, count + 1);
  for (vt_hlo_instruction *i = c->first; i; i = i->next) {
    if (strcmp(i->opcode, "parameter") != 0) continue;
    const vt_hlo_attr *number = vt_hlo_find(i, VT_HLO_FIELD_PARAMETER_NUMBER);
    int64_t at = number ? number->i64 : 0;
    if (at < 0 || at >= count || c->params[at])
      return vt_hlo_blame(vt_error(VT_INVALID_ARGUMENT,
                                   "the parameters of %s are not 0 .. %" PRIu32, c->name,
                                   count - 1),
                          i);
    c->params[at] = i;
  }
  if (!c->root) c->root = c->last;
  if (!c->root) return vt_error(VT_INVALID_ARGUMENT, "computation %s is empty", c->name);
  return VT_OK;
}

static bool same_shape(const vt_hlo_shape *a, const vt_hlo_shape *b) {
  if (a->tuple != b->tuple || a->count != b->count) return false;
  for (uint32_t i = 0; i < a->count; i++)
    if (!same_shape(a->parts[i], b->parts[i])) return false;
  return a->tuple || vt_type_equal(a->type, b->type);
}

// Appends what the shape's arrays are.
static void put_ios(const vt_hlo_shape *shape, vt_hlo_io *infos, uint32_t *at) {
  if (!shape->tuple)
    infos[(*at)++] = (vt_hlo_io){.host = shape->host, .layout = shape->layout, .alias_output = -1};
  for (uint32_t i = 0; i < shape->count; i++) put_ios(shape->parts[i], infos, at);
}

// The arrays of a tuple's shardings, "{{replicated}, {devices=[2,1]0,1}}"; others are of all.
static void put_shardings(vt_hlo_reader *r, const vt_hlo_instruction *of, uint32_t count,
                          vt_hlo_io *infos) {
  const vt_hlo_attr *attr = vt_hlo_find(of, VT_HLO_FIELD_SHARDING);
  if (!attr) return;
  vt_string text = attr->string;
  if (text.size < 2 || text.data[1] != '{') {
    for (uint32_t i = 0; i < count; i++) infos[i].sharding = text;
    return;
  }
  uint32_t i = 0;
  int depth = 0;
  const char *start = NULL;
  for (size_t at = 1; at < text.size && i < count; at++) {
    if (text.data[at] == '{' && depth++ == 0) start = text.data + at;
    if (text.data[at] != '}' || --depth != 0 || !start) continue;
    size_t size = (size_t)(text.data + at + 1 - start);
    infos[i++].sharding = (vt_string){vt_arena_copy(r->arena, start, size), size};
  }
}

// The number of the array at the end of the path; -1 when there is none.
static int64_t leaf_at(const vt_hlo_shape *shape, uint32_t depth, const int64_t *path) {
  int64_t leaf = 0;
  for (uint32_t d = 0; d < depth; d++) {
    if (!shape->tuple || path[d] < 0 || path[d] >= shape->count) return -1;
    for (int64_t i = 0; i < path[d]; i++) leaf += vt_hlo_leaves(shape->parts[i]);
    shape = shape->parts[path[d]];
  }
  return shape->tuple ? -1 : leaf;
}

static vt_status set_donations(vt_hlo_reader *r) {
  vt_hlo *hlo = r->hlo;
  for (size_t i = 0; i < r->donations.size; i++) {
    const vt_hlo_donation *d = &r->donations.data[i];
    int64_t leaf = d->param >= 0 && d->param < hlo->param_count
                       ? leaf_at(hlo->params[d->param], d->param_depth, d->param_path)
                       : -1;
    int64_t result = d->named ? leaf_at(hlo->result, d->result_depth, d->result_path) : 0;
    if (leaf < 0 || result < 0)
      return vt_error(VT_INVALID_ARGUMENT, "the donation of parameter %" PRId64 " names no array",
                      d->param);
    for (int64_t p = 0; p < d->param; p++) leaf += vt_hlo_leaves(hlo->params[p]);
    hlo->param_info[leaf].donated = true;
    if (d->named) hlo->param_info[leaf].alias_output = (int32_t)result;
  }
  return VT_OK;
}

static vt_status describe_entry(vt_hlo_reader *r) {
  vt_hlo *hlo = r->hlo;
  vt_hlo_computation *entry = hlo->entry;
  if (!entry) return vt_error(VT_INVALID_ARGUMENT, "the module has no entry computation");
  bool given = hlo->params && hlo->param_count == entry->param_count && hlo->result &&
               same_shape(hlo->result, entry->root->shape);
  for (uint32_t i = 0; given && i < entry->param_count; i++)
    given = same_shape(hlo->params[i], entry->params[i]->shape);
  if (hlo->params && !given)
    return vt_error(VT_INVALID_ARGUMENT, "the entry computation has another shape than the module");
  if (!given) {
    hlo->param_count = entry->param_count;
    hlo->params = VT_NEW_ARRAY(r->arena, const vt_hlo_shape *, hlo->param_count + 1);
    for (uint32_t i = 0; i < hlo->param_count; i++) hlo->params[i] = entry->params[i]->shape;
    hlo->result = entry->root->shape;
  }
  uint32_t leaves = 0, at = 0;
  for (uint32_t i = 0; i < hlo->param_count; i++) leaves += vt_hlo_leaves(hlo->params[i]);
  hlo->param_info = VT_NEW_ARRAY(r->arena, vt_hlo_io, leaves + 1);
  for (uint32_t i = 0; i < hlo->param_count; i++) {
    uint32_t first = at;
    put_ios(hlo->params[i], hlo->param_info, &at);
    put_shardings(r, entry->params[i], at - first, hlo->param_info + first);
  }
  hlo->result_count = vt_hlo_leaves(hlo->result);
  hlo->result_info = VT_NEW_ARRAY(r->arena, vt_hlo_io, hlo->result_count + 1);
  at = 0;
  put_ios(hlo->result, hlo->result_info, &at);
  put_shardings(r, entry->root, hlo->result_count, hlo->result_info);
  return set_donations(r);
}

vt_status vt_hlo_finish(vt_hlo_reader *r, bool named) {
  int64_t computations = 0, instructions = 0;
  VT_TRY(find_calls(r, named));
  for (vt_hlo_computation *c = r->hlo->first; c; c = c->next) {
    c->id = computations++;
    for (vt_hlo_instruction *i = c->first; i; i = i->next) i->id = instructions++;
  }
  for (vt_hlo_computation *c = r->hlo->first; c; c = c->next) VT_TRY(find_params(r, c));
  return describe_entry(r);
}

vt_status vt_hlo_read(vt_bytes program, vt_hlo **out_hlo) {
  vt_arena arena = {0};
  vt_hlo *hlo = VT_NEW(&arena, vt_hlo);
  hlo->arena = arena;
  hlo->name = "module";
  vt_hlo_reader r = {.hlo = hlo, .arena = &hlo->arena};
  r.budget = (1 << 22) + 16 * (int64_t)(program.size < 1 << 24 ? program.size : 1 << 24);
  vt_status st =
      vt_hlo_is_text(program) ? vt_hlo_read_text(&r, program) : vt_hlo_read_message(&r, program);
  vt_map_free(&r.computations);
  *out_hlo = NULL;
  if (st)
    vt_hlo_destroy(hlo);
  else
    *out_hlo = hlo;
  return st;
}
