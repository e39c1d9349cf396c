// SPDX-License-Identifier: Apache-2.0
// manual_test.c - manual computations on meshes of 2 to 16 devices whose arrays are tiled by some
// of the axes only: several devices hold one tile, and none may see another's changes to it.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <inttypes.h>
#include <string.h>

#include "eval/eval.h"
#include "host/host.h"
#include "import/import.h"

typedef struct mesh {
  int axes;
  int64_t sizes[3];
  const char *order; // of the devices
} mesh;

static const mesh meshes[] = {
    {1, {2}, ""},
    {1, {7}, ""},
    {1, {16}, ""},
    {2, {2, 2}, ""},
    {2, {3, 2}, ""},
    {2, {2, 4}, ""},
    {2, {4, 2}, ""},
    {2, {5, 3}, ""},
    {2, {8, 2}, ""},
    {3, {2, 2, 2}, ""},
    {3, {2, 3, 2}, ""},
    {3, {2, 2, 4}, ""},
    {2, {2, 2}, ", device_ids=[3,1,2,0]"},
    {2, {2, 4}, ", device_ids=[0,2,4,6,1,3,5,7]"},
};

// What each device does with its tile %w of n elements; TYPE stands for the tile's type. For each
// element of the whole array it computes factor * w * w + share * k * w, where k devices hold each
// tile.
typedef struct body {
  const char *name, *text;
  float factor, share;
} body;

static const body bodies[] = {
    {"chain",
     "      %a = stablehlo.add %w, %w : TYPE\n"
     "      %b = stablehlo.multiply %w, %a : TYPE\n"
     "      %r = stablehlo.add %b, %b : TYPE\n",
     4, 0},
    {"sum over the holders",
     "      %a = \"stablehlo.all_reduce\"(%w) <{channel_handle = #stablehlo.channel_handle<handle "
     "= "
     "1, type = 1>, replica_groups = dense<HOLDERS> : tensor<GROUPSxi64>, use_global_device_ids}> "
     "({\n"
     "      ^bb0(%x: tensor<f32>, %y: tensor<f32>):\n"
     "        %s = stablehlo.add %x, %y : tensor<f32>\n"
     "        stablehlo.return %s : tensor<f32>\n"
     "      }) : (TYPE) -> TYPE\n"
     "      %c = stablehlo.add %w, %w : TYPE\n"
     "      %d = stablehlo.multiply %w, %c : TYPE\n"
     "      %r = stablehlo.add %a, %d : TYPE\n",
     2, 1},
    {"loop",
     "      %zero = stablehlo.constant dense<0> : tensor<i32>\n"
     "      %three = stablehlo.constant dense<3> : tensor<i32>\n"
     "      %one = stablehlo.constant dense<1> : tensor<i32>\n"
     "      %v = stablehlo.multiply %w, %w : TYPE\n"
     "      %i, %r, %q = stablehlo.while(%n = %zero, %m = %v, %k = %v) : tensor<i32>, TYPE, TYPE\n"
     "      cond {\n"
     "        %go = stablehlo.compare LT, %n, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
     "        stablehlo.return %go : tensor<i1>\n"
     "      } do {\n"
     "        %next = stablehlo.add %n, %one : tensor<i32>\n"
     "        %more = stablehlo.add %m, %k : TYPE\n"
     "        stablehlo.return %next, %more, %k : tensor<i32>, TYPE, TYPE\n"
     "      }\n",
     4, 0},
    {"branch that the devices take differently",
     "      %id = stablehlo.partition_id : tensor<ui32>\n"
     "      %two = stablehlo.constant dense<2> : tensor<ui32>\n"
     "      %early = stablehlo.compare LT, %id, %two : (tensor<ui32>, tensor<ui32>) -> tensor<i1>\n"
     "      %p = stablehlo.multiply %w, %w : TYPE\n"
     "      %r = \"stablehlo.if\"(%early) ({\n"
     "        %a = stablehlo.add %p, %p : TYPE\n"
     "        stablehlo.return %a : TYPE\n"
     "      }, {\n"
     "        %b = stablehlo.add %w, %w : TYPE\n"
     "        %c = stablehlo.multiply %w, %b : TYPE\n"
     "        stablehlo.return %c : TYPE\n"
     "      }) : (tensor<i1>) -> TYPE\n",
     2, 0},
    {"loop whose devices go round differently",
     "      %id = stablehlo.partition_id : tensor<ui32>\n"
     "      %one = stablehlo.constant dense<1> : tensor<ui32>\n"
     "      %zero = stablehlo.constant dense<0> : tensor<ui32>\n"
     "      %v = stablehlo.multiply %w, %w : TYPE\n"
     "      %i, %m, %k = stablehlo.while(%n = %id, %o = %v, %p = %v) : tensor<ui32>, TYPE, TYPE\n"
     "      cond {\n"
     "        %go = stablehlo.compare GT, %n, %zero : (tensor<ui32>, tensor<ui32>) -> tensor<i1>\n"
     "        stablehlo.return %go : tensor<i1>\n"
     "      } do {\n"
     "        %next = stablehlo.subtract %n, %one : tensor<ui32>\n"
     "        stablehlo.return %next, %p, %o : tensor<ui32>, TYPE, TYPE\n"
     "      }\n"
     "      %r = stablehlo.add %m, %k : TYPE\n",
     2, 0},
    {"scatter whose update is left out",
     "      %v = stablehlo.multiply %w, %w : TYPE\n"
     "      %i = stablehlo.constant dense<1000> : tensor<1xi32>\n"
     "      %u = stablehlo.constant dense<7.0> : tensor<f32>\n"
     "      %r = \"stablehlo.scatter\"(%v, %i, %u) <{scatter_dimension_numbers = "
     "#stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], "
     "index_vector_dim = 0>}> ({\n"
     "      ^bb0(%x: tensor<f32>, %y: tensor<f32>):\n"
     "        stablehlo.return %y : tensor<f32>\n"
     "      }) : (TYPE, tensor<1xi32>, tensor<f32>) -> TYPE\n",
     1, 0},
};

static int64_t devices_of(const mesh *m) {
  int64_t n = 1;
  for (int a = 0; a < m->axes; a++) n *= m->sizes[a];
  return n;
}

static int64_t device_at(const mesh *m, int64_t place) {
  const char *list = strchr(m->order, '[');
  for (int64_t i = 0; list && i < place; i++) list = strchr(list + 1, ',');
  return list ? list[1] - '0' : place;
}

// The devices that hold each tile when the array is tiled along the axes in `cut`.
static void put_holders(vt_text *out, const mesh *m, int cut) {
  int64_t devices = devices_of(m);
  const char *between = "[";
  for (int64_t first = 0; first < devices; first++) {
    vt_text row = {0};
    bool leads = true;
    for (int64_t other = 0; other < devices; other++) {
      bool same = true;
      int64_t x = first, y = other;
      for (int a = m->axes - 1; a >= 0; x /= m->sizes[a], y /= m->sizes[a], a--)
        if (cut >> a & 1) same = same && x % m->sizes[a] == y % m->sizes[a];
      if (!same) continue;
      if (other < first) leads = false;
      vt_text_printf(&row, "%s%" PRId64, row.size ? ", " : "", device_at(m, other));
    }
    if (leads) {
      vt_text_printf(out, "%s[%s]", between, vt_text_string(&row));
      between = ", ";
    }
    vt_text_free(&row);
  }
  vt_text_put(out, "]");
}

static void put_axes(vt_text *out, const mesh *m, int set) {
  const char *between = "";
  for (int a = 0; a < m->axes; a++)
    if (set >> a & 1) {
      vt_text_printf(out, "%s\"%c\"", between, 'a' + a);
      between = ", ";
    }
}

static void put_sharding(vt_text *out, const mesh *m, int set) {
  vt_text_put(out, "[<@mesh, [{");
  put_axes(out, m, set);
  vt_text_put(out, "}]>]");
}

static void put_body(vt_text *out, const char *text, const char *type, const mesh *m, int cut,
                     int64_t tiles) {
  for (const char *at = text; *at;) {
    if (!strncmp(at, "TYPE", 4)) {
      vt_text_put(out, type);
      at += 4;
    } else if (!strncmp(at, "HOLDERS", 7)) {
      put_holders(out, m, cut);
      at += 7;
    } else if (!strncmp(at, "GROUPS", 6)) {
      vt_text_printf(out, "%" PRId64 "x%" PRId64, tiles, devices_of(m) / tiles);
      at += 6;
    } else {
      vt_text_put_n(out, at++, 1);
    }
  }
}

// Runs w of `size` elements, tiled along the axes in `cut`, through the body; `nested`: the first
// axis is manual in an outer region, the others in an inner one.
static void put_program(vt_text *out, const mesh *m, const body *b, int cut, int64_t size,
                        bool nested) {
  int all = (1 << m->axes) - 1, outer = nested ? 1 : all, inner = all & ~outer;
  int64_t tiles = 1;
  vt_text tile = {0}, middle = {0};
  for (int a = 0; a < m->axes; a++)
    if (cut >> a & 1) tiles *= m->sizes[a];
  int64_t outer_tiles = nested && cut & 1 ? m->sizes[0] : nested ? 1 : tiles;
  vt_text_printf(&tile, "tensor<%" PRId64 "xf32>", size / tiles);
  vt_text_printf(&middle, "tensor<%" PRId64 "xf32>", size / outer_tiles);
  vt_text_printf(out,
                 "module @m attributes {mhlo.num_partitions = %" PRId64
                 " : i32, mhlo.num_replicas = 1 : i32} {\n  sdy.mesh @mesh = <[",
                 devices_of(m));
  for (int a = 0; a < m->axes; a++)
    vt_text_printf(out, "%s\"%c\"=%" PRId64, a ? ", " : "", 'a' + a, m->sizes[a]);
  vt_text_printf(out,
                 "]%s>\n  func.func public @main(%%arg0: tensor<%" PRId64
                 "xf32> {tf.aliasing_output = 0 : i32}) -> tensor<%" PRId64 "xf32> {\n",
                 m->order, size, size);
  vt_text_put(out, "    %0 = sdy.manual_computation(%arg0) in_shardings=");
  put_sharding(out, m, cut & outer);
  vt_text_put(out, " out_shardings=");
  put_sharding(out, m, cut & outer);
  vt_text_put(out, " manual_axes={");
  put_axes(out, m, outer);
  vt_text_printf(out, "} (%%%c: %s) {\n", nested ? 'o' : 'w', vt_text_string(&middle));
  if (nested) {
    vt_text_put(out, "      %1 = sdy.manual_computation(%o) in_shardings=");
    put_sharding(out, m, cut & inner);
    vt_text_put(out, " out_shardings=");
    put_sharding(out, m, cut & inner);
    vt_text_put(out, " manual_axes={");
    put_axes(out, m, inner);
    vt_text_printf(out, "} (%%w: %s) {\n", vt_text_string(&tile));
  }
  put_body(out, b->text, vt_text_string(&tile), m, cut, tiles);
  vt_text_printf(out, "      sdy.return %%r : %s\n", vt_text_string(&tile));
  if (nested)
    vt_text_printf(out, "    } : (%s) -> %s\n      sdy.return %%1 : %s\n", vt_text_string(&middle),
                   vt_text_string(&middle), vt_text_string(&middle));
  vt_text_printf(out,
                 "    } : (tensor<%" PRId64 "xf32>) -> tensor<%" PRId64
                 "xf32>\n    return %%0 : tensor<%" PRId64 "xf32>\n  }\n}\n",
                 size, size, size);
  vt_text_free(&tile);
  vt_text_free(&middle);
}

typedef struct expected {
  const body *b;
  int64_t size, holders;
  const char *text;
} expected;

static void check(const expected *e, const char *who, const float *w, const float *got) {
  for (int64_t i = 0; i < e->size; i++) {
    float want = e->b->factor * w[i] * w[i] + e->b->share * (float)e->holders * w[i];
    if (got[i] != want)
      fail_msg("%s, %s: element %" PRId64 " of %" PRId64 " is %g, not %g\n%s", e->b->name, who, i,
               e->size, (double)got[i], (double)want, e->text);
  }
}

static vt_module *import(const char *text) {
  vt_module *module = NULL;
  vt_status st = vt_import((vt_bytes){(const uint8_t *)text, strlen(text)}, &module);
  if (st) fail_msg("%s\n%s", vt_status_message(st), text);
  return module;
}

static void run_host(const expected *e, const mesh *m, vt_host_options options, const float *w) {
  vt_program *program = NULL;
  options.device_count = (int32_t)devices_of(m);
  vt_module *module = import(e->text);
  vt_pass_options passes = vt_host_passes(options.exact_dots);
  vt_status st = options.evaluator_only ? VT_OK : vt_passes_run(module, &passes);
  if (!st) st = vt_host_compile(module, &options, &program);
  if (st) fail_msg("%s\n%s", vt_status_message(st), e->text);
  size_t bytes = sizeof(float) * (size_t)e->size;
  for (int donated = 0; donated <= vt_program_may_alias(program, 0, 0); donated++) {
    float *in = vt_host_alloc((int64_t)bytes), *out = donated ? in : vt_host_alloc((int64_t)bytes);
    memcpy(in, w, bytes);
    st = vt_program_run(program, &(vt_run){.params = (void *[]){in}, .results = (void *[]){out}});
    if (st) fail_msg("%s\n%s", vt_status_message(st), e->text);
    check(e, options.evaluator_only ? "evaluator steps" : "generated code", w, out);
    if (!donated) vt_host_free(out);
    vt_host_free(in);
  }
  vt_program_destroy(program);
}

static void run_evaluator(const expected *e, const mesh *m, const float *w) {
  vt_module *module = import(e->text);
  vt_func *main = module->main;
  vt_eval_env env = {.partition_count = (int32_t)devices_of(m), .replica_count = 1};
  float *out = vt_host_alloc((int64_t)sizeof(float) * e->size);
  vt_tensor arg = {main->params[0]->type, (void *)(uintptr_t)w}, result = {arg.type, out};
  vt_status st = vt_eval_func(main, &env, &arg, &result);
  if (st) fail_msg("%s\n%s", vt_status_message(st), e->text);
  check(e, "evaluator", w, out);
  vt_host_free(out);
  vt_module_destroy(module);
}

static void run_one(const mesh *m, const body *b, int cut, int64_t tile, bool nested) {
  int64_t tiles = 1;
  for (int a = 0; a < m->axes; a++)
    if (cut >> a & 1) tiles *= m->sizes[a];
  int64_t size = tile * tiles;
  vt_text text = {0};
  put_program(&text, m, b, cut, size, nested);
  expected e = {b, size, devices_of(m) / tiles, vt_text_string(&text)};
  float *w = vt_host_alloc((int64_t)sizeof(float) * size);
  for (int64_t i = 0; i < size; i++) w[i] = (float)(i % 61 - 30);
  run_evaluator(&e, m, w);
  run_host(&e, m, (vt_host_options){.evaluator_only = true}, w);
  run_host(&e, m, (vt_host_options){.compile_all = true}, w);
  vt_host_free(w);
  vt_text_free(&text);
}

// Tiles of 64 elements are parts of the array in place, of 3 they are copies.
static void tiles_of_several_devices(void **state) {
  const body *b = *state;
  for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
    for (int cut = 0; cut < 1 << meshes[i].axes; cut++)
      for (int64_t tile = 3; tile <= 64; tile += 61) {
        run_one(&meshes[i], b, cut, tile, false);
        if (meshes[i].axes > 1) run_one(&meshes[i], b, cut, tile, true);
      }
}

int main(void) {
  enum { COUNT = sizeof bodies / sizeof *bodies };
  struct CMUnitTest tests[COUNT];
  for (int i = 0; i < COUNT; i++)
    tests[i] = (struct CMUnitTest){.name = bodies[i].name,
                                   .test_func = tiles_of_several_devices,
                                   .initial_state = (void *)(uintptr_t)&bodies[i]};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
