// SPDX-License-Identifier: Apache-2.0
// layers.c - a program of any size over any number of devices, to measure what partitioning costs.
#include "spmd/partition/layers.h"

#define M "tensor<8192x8192xf32>"
#define V "tensor<8192xf32>"
#define R "tensor<8192x64x128xf32>"
#define T "tensor<64x8192x128xf32>"
#define I "tensor<8192x1xi32>"
#define S "tensor<f32>"

// From an array cut by rows and columns to the next: a dot with a sum, a reduction, tiles that move
// and trade places, halos, and a gather.
static const char layer[] =
    "func.func private @layer(%h: " M ", %w: " M ", %ids: " I ") -> " M " {\n"
    "%a = stablehlo.dot_general %h, %w, contracting_dims = [1] x [0] : (" M ", " M ") -> " M "\n"
    "%b = stablehlo.add %a, %h : " M "\n"
    "%z = stablehlo.constant dense<0.0> : " S "\n"
    "%c = stablehlo.reduce(%b init: %z) applies stablehlo.add across dimensions = [1] : "
    "(" M ", " S ") -> " V "\n"
    "%d = stablehlo.broadcast_in_dim %c, dims = [0] : (" V ") -> " M "\n"
    "%e = stablehlo.subtract %b, %d : " M "\n"
    "%f = stablehlo.reshape %e : (" M ") -> " R "\n"
    "%g = stablehlo.transpose %f, dims = [1, 0, 2] : (" R ") -> " T "\n"
    "%i = stablehlo.tanh %g : " T "\n"
    "%j = stablehlo.transpose %i, dims = [1, 0, 2] : (" T ") -> " R "\n"
    "%k = stablehlo.reshape %j : (" R ") -> " M "\n"
    "%l = sdy.sharding_constraint %k <@m, [{\"y\"}, {\"x\"}]> : " M "\n"
    "%n = stablehlo.pad %l, %z, low = [1, 0], high = [-1, 0], interior = [0, 0] : "
    "(" M ", " S ") -> " M "\n"
    "%o = \"stablehlo.gather\"(%n, %ids) <{dimension_numbers = #stablehlo.gather<"
    "offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], "
    "index_vector_dim = 1>, slice_sizes = array<i64: 1, 8192>}> : (" M ", " I ") -> " M "\n"
    "%p = sdy.sharding_constraint %o <@m, [{\"x\"}, {}]> : " M "\n"
    "%q = stablehlo.iota dim = 0 : " M "\n"
    "%r = stablehlo.add %p, %q : " M "\n"
    "%s = stablehlo.reverse %r, dims = [0] : " M "\n"
    "%t = sdy.sharding_constraint %s <@m, [{\"x\"}, {\"y\"}]> : " M "\n"
    "return %t : " M "\n}\n";

void vt_write_layers(vt_text *out, int64_t ops, int devices) {
  int rows = devices >= 64 ? 64 : devices / 2;
  vt_text_printf(out,
                 "module @main attributes {mhlo.num_partitions = %d : i32, "
                 "mhlo.num_replicas = 1 : i32} {\nsdy.mesh @m = <[\"x\"=%d, \"y\"=%d]>\n%s",
                 devices, rows, devices / rows, layer);
  vt_text_put(out, "func.func public @main(%h0: " M " {sdy.sharding = #sdy.sharding<@m, "
                   "[{\"x\"}, {\"y\"}]>}, %w: " M " {sdy.sharding = #sdy.sharding<@m, "
                   "[{\"y\"}, {}]>}, %ids: " I ") -> " M " {\n");
  int64_t layers = ops / VT_LAYER_OPS;
  for (int64_t i = 0; i < layers; i++)
    vt_text_printf(out,
                   "%%h%lld = call @layer(%%h%lld, %%w, %%ids) : (" M ", " M ", " I ") -> " M "\n",
                   (long long)i + 1, (long long)i);
  vt_text_printf(out, "return %%h%lld : " M "\n}\n}\n", (long long)layers);
}
